// CSV text: where the fields of each record lie (RFC 4180), and columns of numbers.
#include "csv.hpp"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>

#include "bindings.hpp"

namespace squall {
namespace {

// ---------------------------------------------------------------------------------------------- records

// Finds the complete records of one chunk. A chunk that ends inside a record leaves that record to the
// caller, who puts it before the next chunk, so results do not depend on where a file is cut.
class CsvScanner {
  public:
    CsvScanner(std::string_view data, char delimiter, int quote, int64_t n_columns, bool is_last,
               size_t max_field)
        : data_(data),
          delimiter_(delimiter),
          quoting_(quote != 0),
          quote_(static_cast<char>(quote)),
          is_last_(is_last),
          max_field_(max_field),
          n_columns(n_columns) {
        ends_field_[static_cast<unsigned char>(delimiter)] = true;
        ends_field_[static_cast<unsigned char>('\n')] = true;
    }

    void scan() {
        while (consumed < data_.size()) {
            const size_t n_fields = starts.size();
            at_ = consumed;
            line_ = n_lines;
            const Status status = blank_line() ? Status::blank : record();
            if (status == Status::blank || (status == Status::complete && right_width(n_fields))) {
                if (status == Status::complete) lines.push_back(n_lines);
                consumed = at_;
                n_lines = line_;
                continue;
            }
            starts.resize(n_fields);
            ends.resize(n_fields);
            flags.resize(n_fields);
            return;
        }
    }

    std::vector<int32_t> starts, ends;
    std::vector<uint8_t> flags;
    std::vector<int64_t> lines;  // where each record starts, counted from the chunk's first line
    size_t consumed = 0;
    int64_t n_lines = 0;
    const char* error = nullptr;
    int64_t error_line = 0, error_found = 0;

  private:
    enum class Status { complete, blank, incomplete, failed };

    Status fail(const char* kind, int64_t line, int64_t found) {
        error = kind;
        error_line = line;
        error_found = found;
        return Status::failed;
    }

    bool right_width(size_t n_fields) {
        const auto found = static_cast<int64_t>(starts.size() - n_fields);
        if (n_columns == 0) n_columns = found;
        if (found == n_columns) return true;
        fail("fields", n_lines, found);
        return false;
    }

    // Bytes of the line end at `at` (LF, CRLF, or a CR that ends the whole input), 0 if there is none.
    size_t line_end(size_t at) const {
        if (data_[at] == '\n') return 1;
        if (data_[at] != '\r') return 0;
        if (at + 1 == data_.size()) return is_last_ ? 1 : 0;
        return data_[at + 1] == '\n' ? 2 : 0;
    }

    bool blank_line() {
        const size_t size = line_end(at_);
        at_ += size;
        line_ += size != 0;
        return size != 0;
    }

    Status record() {
        const size_t first = starts.size();
        for (;;) {
            const size_t field_start = at_;
            const auto index = static_cast<int64_t>(starts.size() - first);
            const bool quoted = quoting_ && at_ < data_.size() && data_[at_] == quote_;
            const Status status = quoted ? quoted_field() : plain_field();
            if (status == Status::incomplete && data_.size() - field_start > max_field_)
                return fail("long", n_lines, index);
            if (status != Status::complete) return status;
            if (static_cast<size_t>(ends.back() - starts.back()) > max_field_)
                return fail("long", n_lines, index);
            if (at_ == data_.size()) return Status::complete;  // only when is_last_
            if (data_[at_] == delimiter_) {
                ++at_;
                continue;
            }
            at_ += line_end(at_);
            ++line_;
            return Status::complete;
        }
    }

    void add(size_t start, size_t end, unsigned flag) {
        starts.push_back(static_cast<int32_t>(start));
        ends.push_back(static_cast<int32_t>(end));
        flags.push_back(static_cast<uint8_t>(flag));
    }

    // Leaves at_ on the delimiter, the line end or the end of the data.
    Status plain_field() {
        const size_t start = at_;
        const char* const bytes = data_.data();
        size_t at = at_;
        while (at < data_.size() && !ends_field_[static_cast<unsigned char>(bytes[at])]) ++at;
        if (at == data_.size()) {
            if (!is_last_) return Status::incomplete;
            at_ = at > start && bytes[at - 1] == '\r' ? at - 1 : at;
        } else {
            at_ = bytes[at] == '\n' && at > start && bytes[at - 1] == '\r' ? at - 1 : at;
        }
        add(start, at_, 0);
        return Status::complete;
    }

    Status quoted_field() {
        const int64_t opened = line_;
        const size_t start = at_ + 1;
        unsigned flag = csv_quoted;
        size_t at = start;
        for (;;) {
            const void* hit =
                at < data_.size() ? std::memchr(data_.data() + at, quote_, data_.size() - at) : nullptr;
            if (hit == nullptr) return is_last_ ? fail("unterminated", opened, 0) : Status::incomplete;
            at = static_cast<size_t>(static_cast<const char*>(hit) - data_.data());
            if (at + 1 == data_.size() || data_[at + 1] != quote_) break;
            flag |= csv_doubled_quotes;
            at += 2;
        }
        if (at + 1 == data_.size() && !is_last_) return Status::incomplete;  // it may be a doubled quote
        line_ += std::count(data_.data() + start, data_.data() + at, '\n');
        add(start, at, flag);
        at_ = at + 1;
        if (at_ == data_.size() || data_[at_] == delimiter_ || line_end(at_) != 0) return Status::complete;
        if (data_[at_] == '\r' && at_ + 1 == data_.size()) return Status::incomplete;
        return fail("quote", line_, 0);
    }

    std::string_view data_;
    char delimiter_;
    bool quoting_;
    char quote_;
    bool is_last_;
    size_t max_field_;
    std::array<bool, 256> ends_field_{};
    size_t at_ = 0;
    int64_t line_ = 0;

  public:
    int64_t n_columns;
};

nb::tuple csv_scan(const Input& buffer, int delimiter, int quote, int64_t n_columns, bool is_last,
                   int64_t max_field) {
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
                       static_cast<size_t>(max_field));
    {
        nb::gil_scoped_release release;
        scanner.scan();
    }
    const auto rows = static_cast<int64_t>(scanner.lines.size());
    nb::object error = nb::none();
    if (scanner.error) error = nb::make_tuple(scanner.error, rows, scanner.error_line, scanner.error_found);
    return nb::make_tuple(to_numpy(std::move(scanner.starts)), to_numpy(std::move(scanner.ends)),
                          to_numpy(std::move(scanner.flags)), rows, scanner.n_columns, scanner.consumed,
                          to_numpy(std::move(scanner.lines)), scanner.n_lines, error);
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

bool is_digit(char c) { return c >= '0' && c <= '9'; }

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

// from_chars reports 1e-400 and 1e400 alike as out of range. The first is 0 correctly rounded, the second
// is no double at all. Far outside the range, the sign of the decimal exponent tells them apart.
bool is_tiny(std::string_view number) {
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

Number read_number(std::string_view field) {
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
          nb::arg("n_columns"), nb::arg("is_last"), nb::arg("max_field"));
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
