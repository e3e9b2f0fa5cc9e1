// Strings to small integers in the order of first sight, as a class of Python.
#include "string_dictionary.hpp"

#include "bindings.hpp"
#include "csv_values.hpp"

namespace squall {
namespace {

nb::object encode(StringDictionary& self, const Input& buffer, const Input& starts, const Input& ends,
                  const Input& flags, int64_t column, int64_t n_columns, const nb::list& missing, bool strip,
                  int quote) {
    const CsvColumn fields(buffer, starts, ends, flags, column, n_columns, missing, strip, quote);
    Owned<int32_t> codes(static_cast<size_t>(fields.rows()));
    {
        nb::gil_scoped_release release;
        const std::lock_guard lock(self.mutex);
        read_codes(fields, 0, fields.rows(), {codes.data.get(), 1}, self.strings);
    }
    return to_numpy(std::move(codes));
}

nb::object encode_strings(StringDictionary& self, const Input& offsets, const Input& data) {
    const auto ends = vector<int64_t>(offsets, "offsets");
    const auto bytes = byte_view(data, "data");
    if (ends.empty()) value_error("offsets: is empty, strings + 1 elements needed");
    Owned<int32_t> codes(ends.size() - 1);
    {
        nb::gil_scoped_release release;
        const std::lock_guard lock(self.mutex);
        for (size_t i = 0; i < codes.size; ++i) {
            const int64_t begin = ends[i], end = ends[i + 1];
            if (begin < 0 || end < begin || end > static_cast<int64_t>(bytes.size()))
                value_error("offsets: string ", i, " spans [", begin, ", ", end, "), not a range within ",
                            bytes.size(), " bytes");
            const auto text = bytes.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
            codes[i] = self.strings.code(text, Strings::hash(text), i);
        }
    }
    return to_numpy(std::move(codes));
}

nb::tuple to_arrays(StringDictionary& self) {
    const auto lock = self.locked();
    return nb::make_tuple(to_numpy(std::span<const int64_t>(self.strings.offsets())),
                          to_numpy(std::span<const uint8_t>(self.strings.data())));
}

size_t size(StringDictionary& self) {
    const auto lock = self.locked();
    return self.strings.size();
}

size_t n_bytes(StringDictionary& self) {
    const auto lock = self.locked();
    return self.strings.offsets().size() * sizeof(int64_t) + self.strings.data().size();
}

void clear(StringDictionary& self) {
    const auto lock = self.locked();
    self.strings.clear();
}

}  // namespace

void bind_string_dictionary(nb::module_& m) {
    nb::class_<StringDictionary>(m, "StringDictionary",
                                 R"(Text values to codes 0, 1, 2, ... in first-seen order.

One instance codes one column over all its chunks. Strings must be UTF-8. Calls from several
threads take turns.)")
        .def(nb::init<>())
        .def("encode", &encode, nb::arg("buffer").noconvert(), nb::arg("starts").noconvert(),
             nb::arg("ends").noconvert(), nb::arg("flags").noconvert(), nb::arg("column"),
             nb::arg("n_columns"), nb::arg("missing"), nb::arg("strip") = false,
             nb::arg("quote") = static_cast<int>('"'),
             R"(Code one column of a scanned chunk.

Parameters are those of :func:`csv_classify`. Returns int32[n_rows]; -1 is missing.
Raises ValueError naming the row (of this chunk) whose text is not UTF-8; strings of earlier rows stay known.)")
        .def("encode_strings", &encode_strings, nb::arg("offsets").noconvert(), nb::arg("data").noconvert(),
             R"(Code strings given as offsets int64[k + 1] and bytes uint8[...]; merges another dictionary.

Returns int32[k].)")
        .def("to_arrays", &to_arrays,
             "The strings as (offsets int64[k + 1], data uint8[...]), in the order of their codes.")
        .def("clear", &clear, "Forget all strings, and keep the memory.")
        .def_prop_ro("n_bytes", &n_bytes, "Bytes of both arrays.")
        .def("__len__", &size, "Number of different strings seen.");
}

}  // namespace squall
