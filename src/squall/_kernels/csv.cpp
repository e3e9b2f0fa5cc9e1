// CSV text: where the fields of each record lie (RFC 4180), and columns of numbers.
#include "csv.hpp"

#include <nanobind/stl/vector.h>

#include <limits>

#include "bindings.hpp"
#include "csv_scanner.hpp"
#include "csv_values.hpp"

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
            const Number number = read_number(field, fields.readable(field, scratch));
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
    Found found;
    {
        nb::gil_scoped_release release;
        read_int64(fields, 0, fields.rows(), {values.data.get(), 1}, found,
                   [&](int64_t row, bool missing) { absent[static_cast<size_t>(row)] = missing; });
    }
    return nb::make_tuple(to_numpy(std::move(values)), to_numpy(std::move(absent)), found.first_bad);
}

nb::tuple csv_parse_float64(const Input& buffer, const Input& starts, const Input& ends, const Input& flags,
                            int64_t column, int64_t n_columns, const nb::list& missing, bool strip,
                            int quote) {
    const CsvColumn fields(buffer, starts, ends, flags, column, n_columns, missing, strip, quote);
    Owned<double> values(static_cast<size_t>(fields.rows()));
    Found found;
    {
        nb::gil_scoped_release release;
        read_float64(fields, 0, fields.rows(), {values.data.get(), 1}, found);
    }
    return nb::make_tuple(to_numpy(std::move(values)), found.first_bad);
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
