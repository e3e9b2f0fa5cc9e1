// IEEE 754 half precision and back, rounding to the nearest even; the same on every processor.
#pragma once

#include <bit>
#include <cstdint>

namespace squall {

// Choices instead of branches, so that loops of these become vector code.
inline float half_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, rest = half & 0x7fffu;
    const uint32_t moved = rest << 13, bias = 112u << 23;  // between the two exponents
    const uint32_t least = bias + (1u << 23);
    // Subnormal: behind the least normal number, which is taken off again.
    const float small = std::bit_cast<float>(moved + least) - std::bit_cast<float>(least);
    uint32_t bits = rest < 0x400u ? std::bit_cast<uint32_t>(small) : moved + bias;
    bits = rest >= 0x7c00u ? 0x7f800000u | moved : bits;
    return std::bit_cast<float>(sign | bits);
}

inline uint16_t float_to_half(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
    const uint32_t odd = magnitude >> 13 & 1u, normal = (magnitude + 0xfffu + odd - (112u << 23)) >> 13;
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;  // subnormal: lets the adder round
    const uint32_t small = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f);
    uint32_t half = magnitude < 0x38800000u ? small : normal;
    half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // rounds to infinity
    half = magnitude > 0x7f800000u ? 0x7e00u : half;   // not a number
    return static_cast<uint16_t>((bits >> 16 & 0x8000u) | half);
}

}  // namespace squall
