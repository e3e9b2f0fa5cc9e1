// All columns of a scanned chunk of CSV text at once, into arrays that the caller has made.
#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "bindings.hpp"
#include "csv_values.hpp"
#include "string_dictionary.hpp"

namespace squall {
namespace {

template <class T>
Target<T> target(const Buffer& array, int64_t first_row, int64_t n_rows) {
    check_type<T>(array, "out", 1);
    const auto size = static_cast<int64_t>(array.size());
    if (first_row < 0 || first_row > size || n_rows > size - first_row)
        value_error("out: has ", size, " elements, rows ", first_row, " to ", first_row + n_rows, " needed");
    const int64_t stride = array.stride(0);
    return {static_cast<T*>(array.data()) + first_row * stride, stride};
}

// One column, and what becomes of it.
class Reader {
  public:
    Reader(const CsvColumn& fields, const Buffer& out, nb::handle how, int64_t first_row) : fields_(fields) {
        const int64_t n = fields.rows();
        if (nb::isinstance<StringDictionary>(how)) {
            dictionary_ = nb::cast<StringDictionary*>(how);
            int32_ = target<int32_t>(out, first_row, n);
        } else if (nb::isinstance<nb::tuple>(how)) {
            nb::bytes prefix;
            int64_t n_slots = 0;
            const auto pair = nb::borrow<nb::tuple>(how);
            if (pair.size() != 2 || !nb::try_cast(pair[0], prefix) || !nb::try_cast(pair[1], n_slots))
                type_error("columns: the tuple is not (prefix, n_slots)");
            if (n_slots < 1 || n_slots > std::numeric_limits<int32_t>::max())
                value_error("n_slots: is ", n_slots, ", a number in [1, 2^31) needed");
            slots_.emplace(std::string_view(prefix.c_str(), prefix.size()), static_cast<uint32_t>(n_slots));
            int32_ = target<int32_t>(out, first_row, n);
        } else if (!how.is_none()) {
            type_error("columns: a StringDictionary, (prefix, n_slots) or None needed");
        } else if (out.dtype() == nb::dtype<int64_t>()) {
            int64_ = target<int64_t>(out, first_row, n);
        } else {
            float64_ = target<double>(out, first_row, n);
        }
    }

    bool has_dictionary() const { return dictionary_ != nullptr; }

    void read(int64_t begin, int64_t end) {
        if (dictionary_ != nullptr) {
            const std::lock_guard lock(dictionary_->mutex);
            read_codes(fields_, begin, end, int32_, dictionary_->strings);
        } else if (slots_) {
            slots_->read(fields_, begin, end, int32_);
        } else if (int64_.data != nullptr) {
            read_int64(fields_, begin, end, int64_, found, [this](int64_t row, bool missing) {
                if (missing) found.bad(row);
            });
        } else {
            read_float64(fields_, begin, end, float64_, found);
        }
    }

    Found found;

  private:
    CsvColumn fields_;
    StringDictionary* dictionary_ = nullptr;
    std::optional<SlotReader> slots_;
    Target<int32_t> int32_{};
    Target<int64_t> int64_{};
    Target<double> float64_{};
};

nb::list csv_read_columns(const Input& buffer, const Input& starts, const Input& ends, const Input& flags,
                          int64_t n_columns, const nb::list& missing, bool strip, int quote,
                          const nb::list& columns, int64_t first_row) {
    std::vector<Reader> readers;
    int64_t n_rows = 0;
    for (nb::handle item : columns) {
        const auto column = nb::cast<nb::tuple>(item);
        if (column.size() != 3) value_error("columns: (column, out, how) needed");
        const CsvColumn fields(buffer, starts, ends, flags, nb::cast<int64_t>(column[0]), n_columns, missing,
                               strip, quote);
        readers.emplace_back(fields, nb::cast<Buffer>(column[1], false), column[2], first_row);
        n_rows = fields.rows();
    }
    {
        nb::gil_scoped_release release;
        // The text of some rows, and where its fields lie, stay in the innermost cache for all columns.
        constexpr int64_t at_once = 64;
        for (int64_t row = 0; row < n_rows; row += at_once)
            for (Reader& reader : readers)
                if (!reader.has_dictionary()) reader.read(row, std::min(row + at_once, n_rows));
        // A dictionary is what has to stay near.
        for (Reader& reader : readers)
            if (reader.has_dictionary()) reader.read(0, n_rows);
    }
    nb::list found;
    for (const Reader& reader : readers)
        found.append(nb::make_tuple(reader.found.evidence, reader.found.first_bad));
    return found;
}

}  // namespace

void bind_csv_columns(nb::module_& m) {
    m.def("csv_read_columns", &csv_read_columns, nb::arg("buffer").noconvert(), nb::arg("starts").noconvert(),
          nb::arg("ends").noconvert(), nb::arg("flags").noconvert(), nb::arg("n_columns"), nb::arg("missing"),
          nb::arg("strip"), nb::arg("quote"), nb::arg("columns"), nb::arg("first_row"));
}

}  // namespace squall
