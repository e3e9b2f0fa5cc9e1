// Decimal numbers in text, correctly rounded.
#pragma once

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>

namespace squall {

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') <= 9; }

// Eight digits at once (a word's bytes, then pairs, then fours), where the next eight bytes are digits.
inline const char* read_eights(const char* at, const char* last, uint64_t& number) {
    if constexpr (std::endian::native != std::endian::little) return at;
    while (last - at >= 8) {
        uint64_t word = 0;
        std::memcpy(&word, at, 8);
        const uint64_t digits = word - 0x3030303030303030;
        if (((word + 0x4646464646464646) | digits) & 0x8080808080808080) break;
        uint64_t pairs = digits * 10 + (digits >> 8);
        pairs = ((pairs & 0x000000FF000000FF) * 0x000F424000000064 +
                 ((pairs >> 16) & 0x000000FF000000FF) * 0x0000271000000001) >>
                32;
        number = number * 100000000 + pairs;
        at += 8;
    }
    return at;
}

// from_chars reports 1e-400 and 1e400 alike as out of range. The first is 0 correctly rounded, the second
// is no double at all. Far outside the range, the sign of the decimal exponent tells them apart.
inline bool is_tiny(std::string_view number) {
    const size_t e = number.find_first_of("eE");
    const std::string_view mantissa = number.substr(0, e);
    int64_t exponent = 0;
    if (e != std::string_view::npos) {
        std::string_view digits = number.substr(e + 1);
        const bool negative = digits.front() == '-';
        if (negative || digits.front() == '+') digits.remove_prefix(1);
        for (char c : digits) exponent = std::min<int64_t>(exponent * 10 + (c - '0'), int64_t{1} << 40);
        if (negative) exponent = -exponent;
    }
    const size_t first = mantissa.find_first_of("123456789");
    if (first == std::string_view::npos) return true;
    const size_t point = std::min(mantissa.find('.'), mantissa.size());
    return exponent + static_cast<int64_t>(point) - static_cast<int64_t>(first) < 0;
}

// What from_chars makes of an unsigned number; false if it is larger than any double.
[[gnu::noinline]] inline bool read_any_decimal(const char* first, const char* last, double& value) {
    const auto parsed = std::from_chars(first, last, value, std::chars_format::general);
    if (parsed.ec != std::errc::result_out_of_range) return parsed.ec == std::errc{} && parsed.ptr == last;
    value = 0;
    return is_tiny({first, static_cast<size_t>(last - first)});
}

// Reads [+-]?(digits[.digits]|.digits)([eE][+-]?digits)? at `first` and sets `value` to the nearest double.
// Returns where the number ends; null if there is none, or it is larger than any double.
//
// Up to 19 digits make an exact integer, and one below 2^53 times or divided by a power of ten up to 10^22,
// both exact doubles, rounds once (Clinger 1990). Anything else is left to from_chars.
inline const char* read_decimal(const char* first, const char* last, double& value) {
    static constexpr double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                        1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                        1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char* at = first;
    const bool negative = at != last && *at == '-';
    if (negative || (at != last && *at == '+')) ++at;
    const char* const digits = at;
    uint64_t mantissa = 0;
    for (; at != last && is_digit(*at); ++at) mantissa = mantissa * 10 + static_cast<uint64_t>(*at - '0');
    int64_t n_digits = at - digits, exponent = 0;
    if (at != last && *at == '.') {
        const char* const fraction = ++at;
        at = read_eights(at, last, mantissa);
        for (; at != last && is_digit(*at); ++at) mantissa = mantissa * 10 + static_cast<uint64_t>(*at - '0');
        exponent = fraction - at;
        n_digits += at - fraction;
    }
    if (n_digits == 0) return nullptr;
    if (at != last && (*at | 0x20) == 'e') {
        ++at;
        const bool small = at != last && *at == '-';
        if (small || (at != last && *at == '+')) ++at;
        int64_t power = 0;
        const char* const begin = at;
        for (; at != last && is_digit(*at); ++at)
            power = std::min<int64_t>(power * 10 + (*at - '0'), 1 << 30);
        if (at == begin) return nullptr;
        exponent += small ? -power : power;
    }
    constexpr uint64_t exact = uint64_t{1} << 53;
    if (n_digits <= 19 && mantissa <= exact && exponent >= -22 && exponent <= 22) [[likely]] {
        value = static_cast<double>(mantissa);
        value = exponent < 0 ? value / powers[-exponent] : value * powers[exponent];
    } else if (!read_any_decimal(digits, at, value)) {
        return nullptr;
    }
    if (negative) value = -value;
    return at;
}

}  // namespace squall
