// Decimal numbers in text, correctly rounded.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>

namespace squall {

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') <= 9; }

// The number of eight digits, one in each byte, the first in the lowest: pairs first, then fours.
inline uint64_t eight_digits(uint64_t digits) {
    const uint64_t pairs = digits * 10 + (digits >> 8);
    return ((pairs & 0x000000FF000000FF) * 0x000F424000000064 +
            ((pairs >> 16) & 0x000000FF000000FF) * 0x0000271000000001) >>
           32;
}

// Reads the digits from `at` on, at most up to `last`, behind what `number` holds, and returns where they
// end. Eight bytes are looked at together as far as bytes may be read (`readable`, not before `last`),
// because a loop over digits ends with a branch that is foretold wrongly.
inline const char* read_digits(const char* at, const char* last, const char* readable, uint64_t& number) {
    static constexpr uint64_t tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    if constexpr (std::endian::native == std::endian::little) {
        while (readable - at >= 8) {
            uint64_t word = 0;
            std::memcpy(&word, at, 8);
            const uint64_t digits = word - 0x3030303030303030;
            // The highest bit of each byte that is no digit, up to the first such byte.
            const uint64_t others = ((word + 0x4646464646464646) | digits) & 0x8080808080808080;
            const auto n = std::min<int64_t>(std::countr_zero(others) / 8, last - at);
            if (n == 0) return at;
            number = number * tens[n] + eight_digits(digits << (8 * (8 - n)));
            at += n;
            if (n < 8) return at;
        }
    }
    for (; at != last && is_digit(*at); ++at) number = number * 10 + static_cast<uint64_t>(*at - '0');
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

// Digits from the first that is not 0 on.
inline int64_t significant_digits(const char* first, const char* last) {
    int64_t n = 0;
    for (; first != last && (is_digit(*first) || *first == '.'); ++first)
        n += *first != '.' && (n != 0 || *first != '0');
    return n;
}

// mantissa * 10^exponent, rounded once to the nearest double (ties to even); mantissa > 0, |exponent| <= 27.
// 5^27 < 2^63, so the product is exact in 128 bits, and one division gives a quotient of 63 or 64 bits, whose
// remainder says whether anything follows them.
inline double scaled_by_ten(uint64_t mantissa, int64_t exponent) {
    static constexpr auto fives = [] {
        std::array<uint64_t, 28> powers{1};
        for (size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * 5;
        return powers;
    }();
    __extension__ using Wide = unsigned __int128;
    const uint64_t five = fives[static_cast<size_t>(exponent < 0 ? -exponent : exponent)];
    const int left = std::countl_zero(mantissa);
    uint64_t top;        // the leading bits, the first of which is set
    bool more;           // whether lower ones are
    int64_t power_of_2;  // of the last bit of `top`
    if (exponent < 0) {
        const int shift = std::countl_zero(five);
        const uint64_t divisor = five << shift;
        const Wide dividend = static_cast<Wide>(mantissa << left) << 63;
        top = static_cast<uint64_t>(dividend / divisor);
        more = top * static_cast<Wide>(divisor) != dividend;
        power_of_2 = exponent + shift - left - 63;
    } else {
        const Wide product = static_cast<Wide>(mantissa << left) * five;
        const auto high = static_cast<uint64_t>(product >> 64);
        const int size = static_cast<int>(std::bit_width(high));
        top = static_cast<uint64_t>(product >> size);
        more = static_cast<Wide>(top) << size != product;
        power_of_2 = exponent - left + size;
    }
    const int gone = std::countl_zero(top) == 0 ? 11 : 10;  // bits beyond 53
    uint64_t kept = top >> gone;
    const uint64_t rest = top & ((uint64_t{1} << gone) - 1), half = uint64_t{1} << (gone - 1);
    const bool odd = (kept & 1) != 0;
    kept += static_cast<uint64_t>((rest > half) |
                                  ((rest == half) & (more | odd)));  // foretold by nobody, so no branch
    // Far from both ends of a double's range, so multiplying by the power of 2 is exact.
    const auto exponent_bits = static_cast<uint64_t>(power_of_2 + gone + 1023);
    return static_cast<double>(kept) * std::bit_cast<double>(exponent_bits << 52);
}

// Those that are exact doubles.
inline constexpr std::array<double, 23> powers_of_ten = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                         1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                         1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

inline double with_sign(double value, bool negative) {
    return std::bit_cast<double>(std::bit_cast<uint64_t>(value) ^ static_cast<uint64_t>(negative) << 63);
}

// Reads [+-]?(digits[.digits]|.digits)([eE][+-]?digits)? at `first` and sets `value` to the nearest double.
// Returns where the number ends; null if there is none, or it is larger than any double. `readable` is as in
// `read_digits`.
//
// Up to 19 digits make an exact integer, and one below 2^53 times or divided by a power of ten up to 10^22,
// both exact doubles, rounds once (Clinger 1990). So does `scaled_by_ten`. Anything else is left to
// from_chars.
inline const char* read_decimal(const char* first, const char* last, double& value, const char* readable) {
    const char* at = first;
    if (at == last) return nullptr;
    const bool negative = *at == '-';
    at += static_cast<int>(negative) | static_cast<int>(*at == '+');  // no branch: signs are not foretold
    const char* const digits = at;
    uint64_t mantissa = 0;
    at = read_digits(at, last, readable, mantissa);
    int64_t n_digits = at - digits, exponent = 0;
    if (at != last && *at == '.') {
        const char* const fraction = ++at;
        at = read_digits(at, last, readable, mantissa);
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
    const bool whole = n_digits <= 19 || significant_digits(digits, at) <= 19;  // the mantissa is all digits
    if (whole && mantissa <= exact && exponent >= -22 && exponent <= 22) [[likely]] {
        value = static_cast<double>(mantissa);
        const double power = powers_of_ten[static_cast<size_t>(exponent < 0 ? -exponent : exponent)];
        value = exponent < 0 ? value / power : value * power;
    } else if (whole && mantissa != 0 && exponent >= -27 && exponent <= 27) {
        value = scaled_by_ten(mantissa, exponent);
    } else if (!read_any_decimal(digits, at, value)) {
        return nullptr;
    }
    value = with_sign(value, negative);
    return at;
}

}  // namespace squall
