// CSV text: where the fields of each record lie (RFC 4180), and columns of numbers.
#include "csv.hpp"

#include <nanobind/stl/vector.h>

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>

#include "bindings.hpp"
#include "csv_scanner.hpp"
#include "decimal.hpp"

namespace squall {
namespace {

// ---------------------------------------------------------------------------------------------- records

nb::tuple csv_scan(const Input& buffer, int delimiter, int quote, int64_t n_columns, bool is_last,
                   int64_t max_field, bool skip) {
    const std::string_view data = byte_view(buffer, "buffer");
    if (data.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
        value_error("buffer: has ", data.size(), " bytes, a chunk below 2^31 needed");
    const auto is_byte = [](int c) { return c >= 1 && c <= 255 && c != '\n' && c != '\r'; };
    if (!is_byte(delimiter)) value_error("delimiter: ", delimiter, " is not a byte that can separate fields");
    if (quote != 0 && (!is_byte(quote) || quote == delimiter))
        value_error("quote: ", quote, " is not a byte that can quote fields (0 switches quoting off)");
    if (n_columns < 0) value_error("n_columns: is ", n_columns, ", a number >= 0 needed");
    if (max_field < 1) value_error("max_field: is ", max_field, ", a number >= 1 needed");
    CsvScanner scanner(data, static_cast<char>(delimiter), quote, n_columns, is_last,
                       static_cast<size_t>(max_field), skip);
    {
        nb::gil_scoped_release release;
        scanner.scan();
    }
    const auto rows = static_cast<int64_t>(scanner.lines.size());
    const auto plain = [](const CsvScanner::Problem& problem) {
        return nb::make_tuple(problem.kind, problem.row, problem.line, problem.found);
    };
    nb::object error = nb::none();
    if (scanner.failed) error = plain(scanner.problem);
    nb::list skipped;
    for (const auto& problem : scanner.skipped) skipped.append(nb::make_tuple(plain(problem), problem.start));
    return nb::make_tuple(to_numpy(std::move(scanner.starts)), to_numpy(std::move(scanner.ends)),
                          to_numpy(std::move(scanner.flags)), rows, scanner.n_columns, scanner.consumed,
                          to_numpy(std::move(scanner.lines)), scanner.n_lines, error, skipped,
                          scanner.n_skipped);
}

// ------------------------------------------------------------------------------------------- boundaries

nb::tuple csv_follow(const Input& buffer, int delimiter, int quote) {
    const std::string_view text = byte_view(buffer, "buffer");
    Follower follower;
    {
        nb::gil_scoped_release release;
        follower.follow(text, static_cast<char>(delimiter), quote);
    }
    return nb::make_tuple(nb::cast(std::vector<int>(follower.ends.begin(), follower.ends.end())),
                          nb::cast(std::vector<int64_t>(follower.firsts.begin(), follower.firsts.end())));
}

// ---------------------------------------------------------------------------------------------- numbers

// What the fields of a column were seen to be. The bits of several chunks are OR-ed, so a column's type is
// decided over the whole file. An integer that a double cannot hold exactly has a bit of its own: beside
// it a fraction makes the column text, because one of the two would have to be rounded.
enum Evidence : int { seen_integer = 1, seen_float = 2, seen_wide_integer = 4, seen_text = 8 };

struct Number {
    Evidence kind;
    int64_t integer;  // for seen_integer and seen_wide_integer
    double real;      // for all but seen_text
};

bool exact_as_double(int64_t value) {
    const uint64_t magnitude =
        value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    return magnitude == 0 || std::bit_width(magnitude) - std::countr_zero(magnitude) <= 53;
}

// Is the double that was read from these decimal digits exactly that integer?
bool same_integer(std::string_view digits, double value) {
    while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
    std::array<char, 400> exact;
    const auto [end, failure] = std::to_chars(exact.data(), exact.data() + exact.size(), std::fabs(value),
                                              std::chars_format::fixed, 0);
    return failure == std::errc{} &&
           digits == std::string_view(exact.data(), static_cast<size_t>(end - exact.data()));
}

// Numbers of up to 18 digits and no more than a point and an exponent, which most are; seen_text: ask again.
Number read_common_number(std::string_view field) {
    const char* at = field.data();
    const char* const last = at + field.size();
    const bool negative = at != last && *at == '-';
    at += negative;
    int64_t integer = 0;
    const char* const digits = at;
    for (; at != last && is_digit(*at); ++at) {
        if (at - digits >= 18) return {seen_text, 0, 0};
        integer = integer * 10 + (*at - '0');
    }
    if (at == last && at != digits) {
        if (negative) integer = -integer;
        return {exact_as_double(integer) ? seen_integer : seen_wide_integer, integer,
                static_cast<double>(integer)};
    }
    double real = 0;
    if (at == last || (*at != '.' && (*at | 0x20) != 'e')) return {seen_text, 0, 0};
    return {read_decimal(field.data(), last, real) == last ? seen_float : seen_text, 0, real};
}

Number read_number(std::string_view field) {
    constexpr Number not_a_number{seen_text, 0, 0};
    const Number common = read_common_number(field);
    if (common.kind != seen_text) [[likely]]
        return common;
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

nb::tuple csv_classify(const Input& buffer, const Input& starts, const Input& ends, const Input& flags,
                       int64_t column, int64_t n_columns, const nb::list& missing, bool strip, int quote) {
    const CsvColumn fields(buffer, starts, ends, flags, column, n_columns, missing, strip, quote);
    int evidence = 0;
    int64_t first_text = -1;
    {
        nb::gil_scoped_release release;
        std::string scratch;
        for (int64_t row = 0; row < fields.rows() && first_text < 0; ++row) {
            const auto field = fields.field(row, scratch);
            if (fields.is_missing(field)) continue;
            const Number number = read_number(field);
            evidence |= number.kind;
            if (number.kind == seen_text) first_text = row;
        }
    }
    return nb::make_tuple(evidence, first_text);
}

nb::tuple csv_parse_int64(const Input& buffer, const Input& starts, const Input& ends, const Input& flags,
                          int64_t column, int64_t n_columns, const nb::list& missing, bool strip, int quote) {
    const CsvColumn fields(buffer, starts, ends, flags, column, n_columns, missing, strip, quote);
    Owned<int64_t> values(static_cast<size_t>(fields.rows()));
    Owned<bool> absent(values.size);
    int64_t first_bad = -1;
    {
        nb::gil_scoped_release release;
        std::string scratch;
        for (size_t row = 0; row < values.size; ++row) {
            const auto field = fields.field(static_cast<int64_t>(row), scratch);
            absent[row] = fields.is_missing(field);
            const Number number = absent[row] ? Number{seen_integer, 0, 0} : read_number(field);
            const bool good = number.kind == seen_integer || number.kind == seen_wide_integer;
            values[row] = good ? number.integer : 0;
            if (!good && first_bad < 0) first_bad = static_cast<int64_t>(row);
        }
    }
    return nb::make_tuple(to_numpy(std::move(values)), to_numpy(std::move(absent)), first_bad);
}

nb::tuple csv_parse_float64(const Input& buffer, const Input& starts, const Input& ends, const Input& flags,
                            int64_t column, int64_t n_columns, const nb::list& missing, bool strip,
                            int quote) {
    const CsvColumn fields(buffer, starts, ends, flags, column, n_columns, missing, strip, quote);
    Owned<double> values(static_cast<size_t>(fields.rows()));
    int64_t first_bad = -1;
    {
        nb::gil_scoped_release release;
        constexpr double nan = std::numeric_limits<double>::quiet_NaN();
        std::string scratch;
        for (size_t row = 0; row < values.size; ++row) {
            const auto field = fields.field(static_cast<int64_t>(row), scratch);
            values[row] = nan;
            if (fields.is_missing(field)) continue;
            double real = 0;
            const char* const last = field.data() + field.size();
            // Below 2^53 no integer is rounded, so it does not matter whether this is one.
            if (read_decimal(field.data(), last, real) == last && std::fabs(real) < 0x1p53) [[likely]] {
                values[row] = real;
                continue;
            }
            const Number number = read_number(field);
            const bool good = number.kind == seen_integer || number.kind == seen_float;
            if (good) values[row] = number.real;
            if (!good && first_bad < 0) first_bad = static_cast<int64_t>(row);
        }
    }
    return nb::make_tuple(to_numpy(std::move(values)), first_bad);
}

}  // namespace

void bind_csv(nb::module_& m) {
    m.def("csv_scan", &csv_scan, nb::arg("buffer").noconvert(), nb::arg("delimiter"), nb::arg("quote"),
          nb::arg("n_columns"), nb::arg("is_last"), nb::arg("max_field"), nb::arg("skip"));
    m.def("csv_follow", &csv_follow, nb::arg("buffer").noconvert(), nb::arg("delimiter"), nb::arg("quote"));
    const auto column_function = [&m](const char* name, auto function) {
        m.def(name, function, nb::arg("buffer").noconvert(), nb::arg("starts").noconvert(),
              nb::arg("ends").noconvert(), nb::arg("flags").noconvert(), nb::arg("column"),
              nb::arg("n_columns"), nb::arg("missing"), nb::arg("strip"), nb::arg("quote"));
    };
    column_function("csv_classify", &csv_classify);
    column_function("csv_parse_int64", &csv_parse_int64);
    column_function("csv_parse_float64", &csv_parse_float64);
}

}  // namespace squall
