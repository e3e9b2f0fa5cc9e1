// Feature indices of a minibatch to 0, 1, 2, ... in first-seen order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

namespace squall {

// An open-addressing hash table made for this one use:
// - It starts afresh in constant time: a slot holds `base_` + number, and every minibatch moves the base
//   past the numbers of the one before, whose slots then read as free.
// - Whether a feature is new is a coin toss that a processor cannot predict, so there is no branch on it:
//   slot and key are written either way, and a mask chooses what.
// - Its one unpredictable branch is a collision, so it is kept sparse; slots of 4 bytes keep it small.
class Localizer {
  public:
    Localizer() { resize(min_slots); }

    void clear() {
        base_ += static_cast<uint32_t>(size_);
        size_ = 0;
        if (base_ <= std::numeric_limits<uint32_t>::max() / 2) return;
        std::fill(slots_.begin(), slots_.end(), 0);
        base_ = 1;
    }

    // Numbers `n` features into `numbers`. Returns the position of the first that is not in [0, n_features),
    // or n; n_features may be 2^31 at most. `on_feature` sees each before it is numbered (to prefetch).
    // Not inlined: among the registers of a whole training loop, this one would spill.
    template <class OnFeature>
    [[gnu::noinline]] int64_t insert(const int32_t* features, int64_t n, int64_t n_features, int32_t* numbers,
                                     OnFeature on_feature) {
        reserve(n);
        uint32_t* const slots = slots_.data();
        int32_t* const keys = keys_.data();
        const size_t mask = slots_.size() - 1;
        const int shift = shift_;
        const auto base = base_, limit = static_cast<uint32_t>(n_features);
        auto size = static_cast<uint32_t>(size_);
        int64_t i = 0;
        for (; i < n; ++i) {
            const int32_t key = features[i];
            if (static_cast<uint32_t>(key) >= limit) [[unlikely]]
                break;
            on_feature(key);
            keys[size] = key;  // so that a free slot, taken to hold number `size`, compares equal
            for (size_t at = home(key, shift);; at = (at + 1) & mask) {
                const uint32_t held =
                    slots[at] - base;  // far above size if the slot is an earlier minibatch's
                uint32_t is_free = 0u - static_cast<uint32_t>(held >= size);
                asm("" : "+r"(is_free));  // else compilers turn the mask back into a branch
                const uint32_t number = (held & ~is_free) | (size & is_free);
                if (keys[number] != key) [[unlikely]]
                    continue;
                slots[at] = base + number;
                size -= is_free;
                numbers[i] = static_cast<int32_t>(number);
                break;
            }
        }
        size_ = size;
        return i;
    }

    size_t size() const { return size_; }
    size_t capacity() const { return slots_.size(); }
    const int32_t* keys() const { return keys_.data(); }

  private:
    static constexpr size_t min_slots = 4096, slots_per_key = 8;

    static size_t home(int32_t key, int shift) {
        return (static_cast<uint32_t>(key) * 0x9E3779B1u) >> shift;  // Knuth's multiplicative hash
    }

    void reserve(int64_t more) {
        const size_t most = std::min(size_ + static_cast<size_t>(more), size_t{1} << 31);
        if (keys_.size() <= most) keys_.resize(std::max(most + 1, 2 * keys_.size()));
        if (most * slots_per_key > slots_.size() && slots_.size() < size_t{1} << 32)
            resize(std::min(std::bit_ceil(most * slots_per_key), size_t{1} << 32));
    }

    void resize(size_t slots) {
        std::vector<uint32_t>(slots).swap(slots_);
        shift_ = 32 - (std::bit_width(slots) - 1);
        base_ = 1;
        for (size_t i = 0; i < size_; ++i) {
            size_t at = home(keys_[i], shift_);
            while (slots_[at] != 0) at = (at + 1) & (slots - 1);
            slots_[at] = base_ + static_cast<uint32_t>(i);
        }
    }

    std::vector<uint32_t> slots_;
    std::vector<int32_t> keys_;
    size_t size_ = 0;
    uint32_t base_ = 1;
    int shift_ = 0;
};

// A thread's own, empty. It is kept between calls, because the calls of a store's client are short; one that
// a huge call has blown up is not.
inline Localizer& thread_localizer() {
    thread_local Localizer localizer;
    constexpr size_t worth_keeping = size_t{1} << 20;
    if (localizer.capacity() > worth_keeping) localizer = Localizer();
    localizer.clear();
    return localizer;
}

}  // namespace squall
