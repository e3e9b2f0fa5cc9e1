// Strings to small integers in the order of first sight.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "murmur3.hpp"
#include "utf8.hpp"

namespace squall {

// Not for several threads at once.
class Strings {
  public:
    size_t size() const { return hashes_.size(); }
    const std::vector<int64_t>& offsets() const { return offsets_; }
    const std::vector<uint8_t>& data() const { return data_; }

    static uint32_t hash(std::string_view text) { return murmur3_32(text, 0); }

    // The code of a string with that hash is asked for soon.
    void prefetch(uint32_t hash) const { __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]); }

    // `row` is for the message, if the text is no UTF-8.
    int32_t code(std::string_view text, uint32_t hash, size_t row) {
        const uint64_t head = head_of(text);
        const auto length = static_cast<uint32_t>(std::min<size_t>(text.size(), long_text));
        size_t at = hash & (slots_.size() - 1);
        for (; slots_[at].code >= 0; at = (at + 1) & (slots_.size() - 1)) {
            const Slot& slot = slots_[at];
            if (slot.head == head && slot.length == length && (length <= 8 || string(slot.code) == text))
                return slot.code;
        }
        return add(text, hash, {head, length, static_cast<int32_t>(hashes_.size())}, at, row);
    }

    // No string, and room for as many as there were.
    void clear() {
        if (hashes_.size() * 8 < slots_.size()) slots_.resize(64);
        std::fill(slots_.begin(), slots_.end(), Slot{});
        hashes_.clear();
        offsets_.resize(1);
        data_.clear();
    }

  private:
    // What tells most strings apart, and short ones for certain, without a look at the strings themselves.
    struct Slot {
        uint64_t head = 0;    // the first 8 bytes, or all
        uint32_t length = 0;  // up to `long_text`
        int32_t code = -1;    // -1: free
    };
    static constexpr size_t long_text = std::numeric_limits<uint32_t>::max();

    static uint64_t head_of(std::string_view text) {
        uint64_t head = 0;
        if (text.size() >= 8)
            std::memcpy(&head, text.data(), 8);
        else
            for (const char c : text) head = head << 8 | static_cast<unsigned char>(c);
        return head;
    }

    std::string_view string(int32_t code) const {
        const auto i = static_cast<size_t>(code);
        const auto begin = static_cast<size_t>(offsets_[i]), end = static_cast<size_t>(offsets_[i + 1]);
        return {reinterpret_cast<const char*>(data_.data()) + begin, end - begin};
    }

    [[gnu::noinline]] int32_t add(std::string_view text, uint32_t hash, const Slot& slot, size_t at,
                                  size_t row) {
        // A string is checked once, when it is new: an equal one is as well formed.
        if (!is_utf8(text)) value_error("row ", row, ": the text is not valid UTF-8");
        if (hashes_.size() >= static_cast<size_t>(std::numeric_limits<int32_t>::max()))
            value_error("row ", row, ": more than 2^31 - 1 different strings in one column");
        slots_[at] = slot;
        data_.insert(data_.end(), text.begin(), text.end());
        offsets_.push_back(static_cast<int64_t>(data_.size()));
        hashes_.push_back(hash);
        if (2 * hashes_.size() > slots_.size()) grow();
        return slot.code;
    }

    void grow() {
        std::vector<Slot> larger(2 * slots_.size());
        for (const Slot& slot : slots_) {
            if (slot.code < 0) continue;
            size_t at = hashes_[static_cast<size_t>(slot.code)] & (larger.size() - 1);
            while (larger[at].code >= 0) at = (at + 1) & (larger.size() - 1);
            larger[at] = slot;
        }
        slots_ = std::move(larger);
    }

    std::vector<Slot> slots_ = std::vector<Slot>(64);  // a power of two, at most half full
    std::vector<uint32_t> hashes_;
    std::vector<int64_t> offsets_ = {0};
    std::vector<uint8_t> data_;
};

}  // namespace squall
