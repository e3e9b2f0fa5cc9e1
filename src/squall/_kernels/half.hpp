// IEEE 754 half precision and back, rounding to the nearest even; the same on every processor.
#pragma once

#include <bit>
#include <cstdint>

namespace squall {

inline float half_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    // The exponent is off by 112; a multiplication by 2^112 also normalises what is subnormal.
    const float value = std::bit_cast<float>(rest << 13) * std::bit_cast<float>(0x77800000u);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

inline uint16_t float_to_half(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
    const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
    const auto signed_half = [&](uint32_t half) { return static_cast<uint16_t>(sign | half); };
    if (magnitude > 0x7f800000u) return signed_half(0x7e00u);   // not a number
    if (magnitude >= 0x477ff000u) return signed_half(0x7c00u);  // rounds to infinity
    if (magnitude < 0x38800000u) {                              // subnormal: let the adder round
        const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
        return signed_half(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f));
    }
    const uint32_t odd = magnitude >> 13 & 1u;
    return signed_half((magnitude + 0xfffu + odd - (112u << 23)) >> 13);
}

}  // namespace squall
