// What one field of CSV text is: an integer, another number, or text.
#pragma once

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "decimal.hpp"

namespace squall {

// What the fields of a column were seen to be. The bits of several chunks are OR-ed, so a column's type is
// decided over the whole file. An integer that a double cannot hold exactly has a bit of its own: beside
// it a fraction makes the column text, because one of the two would have to be rounded.
enum Evidence : int { seen_integer = 1, seen_float = 2, seen_wide_integer = 4, seen_text = 8 };

struct Number {
    Evidence kind;
    int64_t integer;  // for seen_integer and seen_wide_integer
    double real;      // for all but seen_text
};

inline bool exact_as_double(int64_t value) {
    const uint64_t magnitude =
        value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    return magnitude == 0 || std::bit_width(magnitude) - std::countr_zero(magnitude) <= 53;
}

// Is the double that was read from these decimal digits exactly that integer?
inline bool same_integer(std::string_view digits, double value) {
    while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
    std::array<char, 400> exact;
    const auto [end, failure] = std::to_chars(exact.data(), exact.data() + exact.size(), std::fabs(value),
                                              std::chars_format::fixed, 0);
    return failure == std::errc{} &&
           digits == std::string_view(exact.data(), static_cast<size_t>(end - exact.data()));
}

// Numbers of up to 18 digits before a point and no more than a point and an exponent, which most are;
// seen_text: ask again.
inline Number read_common_number(std::string_view field, const char* readable) {
    const char* at = field.data();
    const char* const last = at + field.size();
    const bool negative = at != last && *at == '-';
    at += negative;
    uint64_t magnitude = 0;
    const char* const digits = at;
    at = read_digits(at, last, readable, magnitude);
    if (at - digits > 18) return {seen_text, 0, 0};
    if (at == last && at != digits) {
        const auto integer = negative ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude);
        return {exact_as_double(integer) ? seen_integer : seen_wide_integer, integer,
                static_cast<double>(integer)};
    }
    double real = 0;
    if (at == last || (*at != '.' && (*at | 0x20) != 'e')) return {seen_text, 0, 0};
    return {read_decimal(field.data(), last, real, readable) == last ? seen_float : seen_text, 0, real};
}

[[gnu::noinline]] inline Number read_odd_number(std::string_view field) {
    constexpr Number not_a_number{seen_text, 0, 0};
    if (field.empty()) return not_a_number;
    // from_chars knows no leading '+', and would read inf, nan and nan(...).
    const bool negative = field.front() == '-';
    std::string_view unsigned_part = field;
    if (negative || field.front() == '+') unsigned_part.remove_prefix(1);
    if (unsigned_part.empty() || !(is_digit(unsigned_part.front()) || unsigned_part.front() == '.'))
        return not_a_number;
    const char* const first = negative ? field.data() : unsigned_part.data();
    const char* const last = field.data() + field.size();

    int64_t integer = 0;
    const auto whole = std::from_chars(first, last, integer);
    if (whole.ptr == last && whole.ec == std::errc{})
        return {exact_as_double(integer) ? seen_integer : seen_wide_integer, integer,
                static_cast<double>(integer)};

    double real = 0;
    const auto parsed = std::from_chars(first, last, real, std::chars_format::general);
    if (parsed.ptr != last) return not_a_number;
    if (parsed.ec == std::errc::result_out_of_range) {
        if (!is_tiny(unsigned_part)) return not_a_number;
        real = negative ? -0.0 : 0.0;
    } else if (parsed.ec != std::errc{}) {
        return not_a_number;
    }
    const bool is_integer = whole.ptr == last;  // all digits, but beyond int64
    if (is_integer && !same_integer(unsigned_part, real)) return not_a_number;
    return {seen_float, 0, real};
}

inline Number read_number(std::string_view field, const char* readable) {
    const Number common = read_common_number(field, readable);
    return common.kind != seen_text ? common : read_odd_number(field);
}

}  // namespace squall
