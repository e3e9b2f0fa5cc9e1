// MurmurHash3, x86 32-bit variant (Austin Appleby's public-domain algorithm), written from its description:
// blocks of four little-endian bytes, then a tail of up to three, then the length, then an avalanche.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace squall {

inline uint32_t murmur3_32(std::string_view data, uint32_t seed) {
    constexpr uint32_t c1 = 0xcc9e2d51u, c2 = 0x1b873593u;
    const auto scramble = [](uint32_t k) { return std::rotl(k * c1, 15) * c2; };
    const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(data[i])); };

    uint32_t h = seed;
    const size_t whole = data.size() & ~size_t{3};
    for (size_t i = 0; i < whole; i += 4) {
        uint32_t k;
        if constexpr (std::endian::native == std::endian::little)
            std::memcpy(&k, data.data() + i, 4);
        else
            k = byte(i) | byte(i + 1) << 8 | byte(i + 2) << 16 | byte(i + 3) << 24;
        h = std::rotl(h ^ scramble(k), 13) * 5 + 0xe6546b64u;
    }
    uint32_t tail = 0;
    for (size_t i = data.size(); i > whole; --i) tail = tail << 8 | byte(i - 1);
    if (whole != data.size()) h ^= scramble(tail);

    h ^= static_cast<uint32_t>(data.size());
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return h ^ h >> 16;
}

}  // namespace squall
