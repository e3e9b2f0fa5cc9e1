// MurmurHash3, x86 32-bit variant (Austin Appleby's public-domain algorithm), written from its description:
// blocks of four little-endian bytes, then a tail of up to three, then the length, then an avalanche.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace squall {

inline uint32_t murmur3_scrambled(uint32_t k) { return std::rotl(k * 0xcc9e2d51u, 15) * 0x1b873593u; }

// The state behind one more block of four bytes.
inline uint32_t murmur3_mixed(uint32_t h, uint32_t block) {
    return std::rotl(h ^ murmur3_scrambled(block), 13) * 5 + 0xe6546b64u;
}

inline uint32_t murmur3_final(uint32_t h, size_t size) {
    h ^= static_cast<uint32_t>(size);
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return h ^ h >> 16;
}

// Up to four bytes as a block.
inline uint32_t murmur3_word(std::string_view bytes) {
    uint32_t word = 0;
    for (size_t i = bytes.size(); i > 0; --i) word = word << 8 | static_cast<unsigned char>(bytes[i - 1]);
    return word;
}

inline uint32_t murmur3_32(std::string_view data, uint32_t seed) {
    uint32_t h = seed;
    const size_t whole = data.size() & ~size_t{3};
    for (size_t i = 0; i < whole; i += 4) {
        uint32_t k = 0;
        if constexpr (std::endian::native == std::endian::little)
            std::memcpy(&k, data.data() + i, 4);
        else
            k = murmur3_word(data.substr(i, 4));
        h = murmur3_mixed(h, k);
    }
    if (whole != data.size()) h ^= murmur3_scrambled(murmur3_word(data.substr(whole)));
    return murmur3_final(h, data.size());
}

}  // namespace squall
