// Decimal numbers without an exponent, sixteen characters of them at once. A loop over digits waits for each
// character, and branches at ends that are not foretold; here all is arithmetic, so that the processor works
// on several numbers at a time.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "decimal.hpp"
#ifdef __SSE4_1__
#include <smmintrin.h>
#endif

namespace squall {

// A number's digits as an integer, and how many of them stand behind the point.
struct Fixed {
    uint64_t mantissa = 0;
    int places = 0;
    bool negative = false, whole = true;  // without a point

    // The nearest double; for a mantissa up to 10^19 and up to 27 places.
    double value() const {
        if (mantissa <= uint64_t{1} << 53 && places <= 22) [[likely]]  // exact, so it is rounded once
            return with_sign(static_cast<double>(mantissa) / powers_of_ten[static_cast<size_t>(places)],
                             negative);
        return with_sign(scaled_by_ten(mantissa, -places), negative);
    }
};

#ifdef __SSE4_1__

struct DecimalBlock {
    uint64_t number;  // of the digits, up to 16
    int point;        // its place; `size` if there is none
    int n_digits;
    bool negative, good;
};

// The first `size` <= 16 of 16 bytes that may be read: digits, perhaps a point, perhaps a sign before them.
template <bool may_be_signed>
[[gnu::always_inline]] inline DecimalBlock read_block(const char* first, int size) {
    // Windows into these begin where a character's place says.
    alignas(16) static constexpr std::array<int8_t, 32> from_places = [] {
        std::array<int8_t, 32> places{};
        for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int8_t>(static_cast<int>(i) - 16);
        return places;
    }();
    alignas(16) static constexpr std::array<int8_t, 33> one_back = [] {
        std::array<int8_t, 33> steps{};
        for (size_t i = 0; i < 16; ++i) steps[i] = -1;
        return steps;
    }();
    const auto window = [](const int8_t* at) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    };

    const __m128i chars = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first));
    const __m128i digits = _mm_sub_epi8(chars, _mm_set1_epi8('0'));
    const __m128i are_digits = _mm_cmpeq_epi8(_mm_min_epu8(digits, _mm_set1_epi8(9)), digits);
    const auto points = static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(chars, _mm_set1_epi8('.'))));
    const bool negative = may_be_signed && *first == '-';
    const auto sign = static_cast<uint32_t>(negative | (may_be_signed && *first == '+'));
    const uint32_t all = (uint32_t{1} << size) - 1;
    const uint32_t others = ~static_cast<uint32_t>(_mm_movemask_epi8(are_digits)) & all & ~sign;
    const int point = std::countr_zero(others | (all + 1));
    const int has_point = others != 0;

    // To the right end, what stands before the point one place further, onto it; nothing there means zero.
    const int edge = has_point ? 16 - size + point + 1 : 0;
    const __m128i places =
        _mm_add_epi8(window(from_places.data() + size), window(one_back.data() + 16 - edge));
    const __m128i aligned = _mm_shuffle_epi8(_mm_and_si128(digits, are_digits), places);
    const __m128i pairs =
        _mm_maddubs_epi16(aligned, _mm_setr_epi8(10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1));
    const __m128i fours = _mm_madd_epi16(pairs, _mm_setr_epi16(100, 1, 100, 1, 100, 1, 100, 1));
    const __m128i eights = _mm_madd_epi16(_mm_packus_epi32(fours, fours),
                                          _mm_setr_epi16(10000, 1, 10000, 1, 10000, 1, 10000, 1));
    const auto both = static_cast<uint64_t>(_mm_cvtsi128_si64(eights));
    return {(both & 0xFFFFFFFF) * 100000000 + (both >> 32), point, size - static_cast<int>(sign) - has_point,
            negative, ((others & ~points) | (others & (others - 1))) == 0};
}

// [+-]?(digits[.digits]|.digits) of up to 32 characters, as far as a `Fixed` holds it; false: it may be a
// number all the same. `readable` is as in `read_digits`. Inlined, for what goes through memory in parts and
// comes back whole is waited for.
[[gnu::always_inline]] inline bool read_fixed(const char* first, size_t size, const char* readable,
                                              Fixed& fixed) {
    if (size <= 16) {
        if (readable - first < 16) [[unlikely]]
            return false;
        const DecimalBlock block = read_block<true>(first, static_cast<int>(size));
        const int n_behind = static_cast<int>(size) - 1 - block.point;  // -1 without a point
        fixed = {block.number, n_behind < 0 ? 0 : n_behind, block.negative, n_behind < 0};
        return block.good & (block.n_digits > 0);
    }
    if (size > 32) return false;
    // The last 16 characters, and what stands before them; the point may be in either.
    const auto n_head = static_cast<int>(size) - 16;
    const DecimalBlock head = read_block<true>(first, n_head), tail = read_block<false>(first + n_head, 16);
    const bool in_head = head.point < n_head, in_tail = tail.point < 16;
    constexpr uint64_t ten_to_15 = 1000000000000000;
    fixed = {head.number * (in_head ? 10 * ten_to_15 : ten_to_15) + tail.number,
             in_head ? 16 + n_head - 1 - head.point : 15 - tail.point, head.negative, false};
    return head.good & tail.good & (in_head != in_tail) & (head.number < 1000) & (fixed.mantissa != 0) &
           (fixed.places <= 27);
}

#else

inline bool read_fixed(const char*, size_t, const char*, Fixed&) { return false; }

#endif

}  // namespace squall
