// Feature indices of a minibatch to 0, 1, 2, ... in first-seen order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

namespace squall {

// An open-addressing hash table that starts afresh in constant time: a slot belongs to the current
// minibatch only if its number is not below `base_`, and every minibatch moves the base past its own.
// It is as large as a minibatch's features need, so it stays in the nearest caches.
class Localizer {
  public:
    Localizer() { resize(min_slots); }

    void clear() {
        base_ += static_cast<uint32_t>(size_);
        size_ = 0;
        if (base_ > std::numeric_limits<uint32_t>::max() / 2) {
            std::fill(slots_.begin(), slots_.end(), Slot{});
            base_ = 1;
        }
    }

    // Numbers `n` features into `numbers`. Returns the position of the first that is not in [0, n_features),
    // or n. `on_feature` sees each before it is numbered (to prefetch).
    //
    // Whether a feature is new is a coin toss that a processor cannot predict, so there is no branch on it:
    // slot and key are written either way, and what to write is chosen by a mask.
    template <class OnFeature>
    int64_t insert(const int32_t* features, int64_t n, int64_t n_features, int32_t* numbers,
                   OnFeature on_feature) {
        reserve(n);
        Slot* const slots = slots_.data();
        int32_t* const keys = keys_.data();
        const size_t mask = slots_.size() - 1;
        const uint32_t base = base_;
        const int shift = shift_;
        uint32_t next = base + static_cast<uint32_t>(size_);
        int64_t i = 0;
        for (; i < n; ++i) {
            const int32_t key = features[i];
            if (key < 0 || key >= n_features) [[unlikely]]
                break;
            on_feature(key);
            size_t at = home(key, shift);
            uint32_t stale = stale_mask(slots[at], base);
            while ((static_cast<uint32_t>(slots[at].key ^ key) & ~stale) != 0) [[unlikely]] {
                at = (at + 1) & mask;
                stale = stale_mask(slots[at], base);
            }
            const uint32_t number = (slots[at].number & ~stale) | (next & stale);
            slots[at] = {key, number};
            keys[next - base] = key;
            next -= stale;
            numbers[i] = static_cast<int32_t>(number - base);
        }
        size_ = next - base;
        return i;
    }

    size_t size() const { return size_; }
    const int32_t* keys() const { return keys_.data(); }

  private:
    struct Slot {
        int32_t key = 0;
        uint32_t number = 0;
    };
    static constexpr size_t min_slots = 1024, max_load = 4;

    void reserve(int64_t more) {
        // One key more than there can be, because the next place is written even if it stays unused.
        const auto needed = std::min(size_ + static_cast<size_t>(more), size_t{1} << 31) + 1;
        if (keys_.size() < needed) keys_.resize(std::max(needed, 2 * keys_.size()));
        if (needed * max_load > slots_.size()) resize(std::bit_ceil(needed * max_load));
    }

    // All ones for a slot of an earlier minibatch, 0 for one in use.
    static uint32_t stale_mask(Slot slot, uint32_t base) {
        return static_cast<uint32_t>((int64_t{slot.number} - int64_t{base}) >> 63);
    }

    static size_t home(int32_t key, int shift) {
        return (static_cast<uint32_t>(key) * 0x9E3779B1u) >> shift;  // Knuth's multiplicative hash
    }

    void resize(size_t slots) {
        std::vector<Slot>(slots).swap(slots_);
        shift_ = 32 - (std::bit_width(slots) - 1);
        base_ = 1;
        for (size_t i = 0; i < size_; ++i) {
            size_t at = home(keys_[i], shift_);
            while (slots_[at].number != 0) at = (at + 1) & (slots_.size() - 1);
            slots_[at] = {keys_[i], base_ + static_cast<uint32_t>(i)};
        }
    }

    std::vector<Slot> slots_;
    std::vector<int32_t> keys_;
    size_t size_ = 0;
    uint32_t base_ = 1;
    int shift_ = 22;
};

}  // namespace squall
