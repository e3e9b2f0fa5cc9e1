// Strings to small integers in the order of first sight.
#include <bit>
#include <limits>
#include <mutex>

#include "bindings.hpp"
#include "csv.hpp"
#include "murmur3.hpp"
#include "utf8.hpp"

namespace squall {
namespace {

class StringDictionary {
  public:
    nb::object encode(const Input& buffer, const Input& starts, const Input& ends, const Input& flags,
                      int64_t column, int64_t n_columns, const nb::list& missing, bool strip, int quote) {
        const CsvColumn fields(buffer, starts, ends, flags, column, n_columns, missing, strip, quote);
        Owned<int32_t> codes(static_cast<size_t>(fields.rows()));
        {
            nb::gil_scoped_release release;
            const std::lock_guard lock(mutex_);
            std::string scratch;
            for (size_t row = 0; row < codes.size; ++row) {
                const auto field = fields.field(static_cast<int64_t>(row), scratch);
                codes[row] = fields.is_missing(field) ? -1 : code(field, row);
            }
        }
        return to_numpy(std::move(codes));
    }

    nb::object encode_strings(const Input& offsets, const Input& data) {
        const auto ends = vector<int64_t>(offsets, "offsets");
        const auto bytes = byte_view(data, "data");
        if (ends.empty()) value_error("offsets: is empty, strings + 1 elements needed");
        Owned<int32_t> codes(ends.size() - 1);
        {
            nb::gil_scoped_release release;
            const std::lock_guard lock(mutex_);
            for (size_t i = 0; i < codes.size; ++i) {
                const int64_t begin = ends[i], end = ends[i + 1];
                if (begin < 0 || end < begin || end > static_cast<int64_t>(bytes.size()))
                    value_error("offsets: string ", i, " spans [", begin, ", ", end, "), not a range within ",
                                bytes.size(), " bytes");
                codes[i] =
                    code(bytes.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), i);
            }
        }
        return to_numpy(std::move(codes));
    }

    nb::tuple to_arrays() {
        const std::unique_lock lock = locked();
        return nb::make_tuple(to_numpy(std::span<const int64_t>(offsets_)),
                              to_numpy(std::span<const uint8_t>(data_)));
    }

    size_t size() {
        const std::unique_lock lock = locked();
        return hashes_.size();
    }

  private:
    // A thread waiting here must not hold the interpreter: the owner may need it to finish.
    std::unique_lock<std::mutex> locked() {
        nb::gil_scoped_release release;
        return std::unique_lock(mutex_);
    }

    std::string_view string(size_t code) const {
        const auto begin = static_cast<size_t>(offsets_[code]), end = static_cast<size_t>(offsets_[code + 1]);
        return {reinterpret_cast<const char*>(data_.data()) + begin, end - begin};
    }

    int32_t code(std::string_view text, size_t row) {
        const uint32_t hash = murmur3_32(text, 0);
        size_t at = hash & (slots_.size() - 1);
        for (; slots_[at] >= 0; at = (at + 1) & (slots_.size() - 1)) {
            const auto found = static_cast<size_t>(slots_[at]);
            if (hashes_[found] == hash && string(found) == text) return slots_[at];
        }
        // A string is checked once, when it is new: an equal one is as well formed.
        if (!is_utf8(text)) value_error("row ", row, ": the text is not valid UTF-8");
        if (hashes_.size() >= static_cast<size_t>(std::numeric_limits<int32_t>::max()))
            value_error("row ", row, ": more than 2^31 - 1 different strings in one column");
        const auto added = static_cast<int32_t>(hashes_.size());
        slots_[at] = added;
        data_.insert(data_.end(), text.begin(), text.end());
        offsets_.push_back(static_cast<int64_t>(data_.size()));
        hashes_.push_back(hash);
        if (2 * hashes_.size() > slots_.size()) grow();
        return added;
    }

    void grow() {
        slots_.assign(2 * slots_.size(), -1);
        for (size_t i = 0; i < hashes_.size(); ++i) {
            size_t at = hashes_[i] & (slots_.size() - 1);
            while (slots_[at] >= 0) at = (at + 1) & (slots_.size() - 1);
            slots_[at] = static_cast<int32_t>(i);
        }
    }

    std::mutex mutex_;
    std::vector<int32_t> slots_ = std::vector<int32_t>(64, -1);  // a power of two, at most half full
    std::vector<uint32_t> hashes_;
    std::vector<int64_t> offsets_ = {0};
    std::vector<uint8_t> data_;
};

}  // namespace

void bind_string_dictionary(nb::module_& m) {
    nb::class_<StringDictionary>(m, "StringDictionary",
                                 R"(Text values to codes 0, 1, 2, ... in first-seen order.

One instance codes one column over all its chunks. Strings must be UTF-8. Calls from several
threads take turns.)")
        .def(nb::init<>())
        .def("encode", &StringDictionary::encode, nb::arg("buffer").noconvert(),
             nb::arg("starts").noconvert(), nb::arg("ends").noconvert(), nb::arg("flags").noconvert(),
             nb::arg("column"), nb::arg("n_columns"), nb::arg("missing"), nb::arg("strip") = false,
             nb::arg("quote") = static_cast<int>('"'),
             R"(Code one column of a scanned chunk.

Parameters are those of :func:`csv_classify`. Returns int32[n_rows]; -1 is missing.
Raises ValueError naming the row (of this chunk) whose text is not UTF-8; strings of earlier rows stay known.)")
        .def("encode_strings", &StringDictionary::encode_strings, nb::arg("offsets").noconvert(),
             nb::arg("data").noconvert(),
             R"(Code strings given as offsets int64[k + 1] and bytes uint8[...]; merges another dictionary.

Returns int32[k].)")
        .def("to_arrays", &StringDictionary::to_arrays,
             "The strings as (offsets int64[k + 1], data uint8[...]), in the order of their codes.")
        .def("__len__", &StringDictionary::size, "Number of different strings seen.");
}

}  // namespace squall
