// MurmurHash3 of texts that all begin alike.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "murmur3.hpp"

namespace squall {

// Up to 16 bytes in two words, the first in the lowest byte, and zeros behind them.
class ShortText {
  public:
    // 16 bytes may be read from `first` on; size <= 16.
    ShortText(const char* first, size_t size) : size(size) {
        if constexpr (std::endian::native == std::endian::little) {
            std::memcpy(words.data(), first, 16);
            words[0] &= kept[8 + size];
            words[1] &= kept[size];
        } else {
            for (size_t i = 0; i < size; ++i)
                words[i / 8] |= uint64_t{static_cast<unsigned char>(first[i])} << (8 * (i % 8));
        }
    }

    bool is_ascii() const { return ((words[0] | words[1]) & 0x8080808080808080) == 0; }

    std::array<uint64_t, 2> words{};
    size_t size;

  private:
    // The lowest n - 8 bytes.
    static constexpr std::array<uint64_t, 25> kept = [] {
        std::array<uint64_t, 25> masks{};
        for (size_t n = 9; n < masks.size(); ++n)
            masks[n] = n >= 16 ? ~uint64_t{0} : (uint64_t{1} << (8 * (n - 8))) - 1;
        return masks;
    }();
};

// murmur3_32(prefix + text, 0). What the prefix's whole blocks do to the state is known beforehand, and a
// short text takes no branch that depends on its length.
class PrefixedHash {
  public:
    explicit PrefixedHash(std::string_view prefix)
        : key_(prefix), prefix_size_(prefix.size()), rest_bits_(8 * (prefix.size() % 4)) {
        const size_t whole = prefix.size() - prefix.size() % 4;
        for (size_t i = 0; i < whole; i += 4)
            state_ = murmur3_mixed(state_, murmur3_word(prefix.substr(i, 4)));
        rest_ = murmur3_word(prefix.substr(whole));
    }

    uint32_t operator()(const ShortText& text) const {
        const auto [low, high] = text.words;
        const uint64_t carry = 64 - rest_bits_;
        // A shift by 64 bits is none.
        const uint64_t first = rest_ | low << rest_bits_,
                       second = high << rest_bits_ | (rest_bits_ == 0 ? 0 : low >> carry),
                       third = rest_bits_ == 0 ? 0 : high >> carry;
        const std::array<uint32_t, 5> blocks = {
            static_cast<uint32_t>(first), static_cast<uint32_t>(first >> 32), static_cast<uint32_t>(second),
            static_cast<uint32_t>(second >> 32), static_cast<uint32_t>(third)};
        const size_t n_blocks = (rest_bits_ / 8 + text.size) / 4;
        uint32_t state = state_, tail = blocks[4];
        for (size_t i = 0; i < 4; ++i) {
            const uint32_t mixed = murmur3_mixed(state, blocks[i]);
            state = i < n_blocks ? mixed : state;
            tail = i == n_blocks ? blocks[i] : tail;
        }
        return murmur3_final(state ^ murmur3_scrambled(tail), prefix_size_ + text.size);
    }

    uint32_t operator()(std::string_view text) {
        key_.resize(prefix_size_);
        key_.append(text);
        return murmur3_32(key_, 0);
    }

  private:
    std::string key_;
    size_t prefix_size_;
    uint64_t rest_bits_;  // of the bytes behind the prefix's last whole block
    uint64_t rest_ = 0;
    uint32_t state_ = 0;
};

}  // namespace squall
