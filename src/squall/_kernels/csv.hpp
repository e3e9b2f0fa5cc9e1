// One column of a scanned chunk of CSV text: its fields as text, checked and unescaped.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "arrays.hpp"
#include "csv_scanner.hpp"

namespace squall {

class CsvColumn {
  public:
    CsvColumn(const Input& buffer, const Input& starts, const Input& ends, const Input& flags, int64_t column,
              int64_t n_columns, const nb::list& missing, bool strip, int quote)
        : buffer_(byte_view(buffer, "buffer")),
          starts_(vector<int32_t>(starts, "starts")),
          ends_(vector<int32_t>(ends, "ends", starts_.size())),
          flags_(vector<uint8_t>(flags, "flags", starts_.size())),
          column_(column),
          n_columns_(n_columns),
          strip_(strip),
          quote_(static_cast<char>(quote)) {
        if (n_columns < 1) value_error("n_columns: is ", n_columns, ", a number >= 1 needed");
        if (column < 0 || column >= n_columns)
            index_error("column: ", column, " is not in [0, ", n_columns, ")");
        if (static_cast<int64_t>(starts_.size()) % n_columns != 0)
            value_error("starts: has ", starts_.size(), " fields, not a multiple of ", n_columns, " columns");
        for (nb::handle token : missing) {
            if (!nb::isinstance<nb::bytes>(token)) type_error("missing: must be a list of bytes");
            const auto bytes = nb::borrow<nb::bytes>(token);
            missing_.emplace_back(bytes.c_str(), bytes.size());
            if (bytes.size() == 0)
                empty_is_missing_ = true;
            else
                missing_sizes_[static_cast<unsigned char>(*bytes.c_str())] |= size_bit(bytes.size());
        }
    }

    int64_t rows() const { return static_cast<int64_t>(starts_.size()) / n_columns_; }

    // Where readable bytes end, those of the next fields included.
    const char* readable(std::string_view field, const std::string& scratch) const {
        const bool is_copy = field.data() == scratch.data();
        return is_copy ? field.data() + field.size() : buffer_.data() + buffer_.size();
    }

    // The text of one field; `scratch` holds it when doubled quotes had to be undone.
    std::string_view field(int64_t row, std::string& scratch) const {
        const auto at = static_cast<size_t>(row * n_columns_ + column_);
        const int32_t begin = starts_[at], end = ends_[at];
        if (begin < 0 || end < begin || static_cast<size_t>(end) > buffer_.size()) [[unlikely]]
            bad_span(row, begin, end);
        const char* first = buffer_.data() + begin;
        const char* last = buffer_.data() + end;
        const uint8_t flags = flags_[at];
        if (flags & csv_doubled_quotes) [[unlikely]]
            return unescape({first, static_cast<size_t>(last - first)}, scratch);
        if (strip_ && !(flags & csv_quoted)) {
            // Whether a field is empty is not foretold, so no branch asks that alone. The bytes exist: a
            // field of any length has a byte, and one without any lies between two, but at the ends of the
            // text.
            const bool inside = begin != 0 && static_cast<size_t>(end) != buffer_.size();
            if (!inside || ((end > begin) & (blank(*first) | blank(last[-1])))) [[unlikely]] {
                while (first != last && blank(*first)) ++first;
                while (first != last && blank(last[-1])) --last;
            }
        }
        return {first, static_cast<size_t>(last - first)};
    }

    bool empty_is_missing() const { return empty_is_missing_; }

    // Whether a text of that size, which is not empty, can be one that means "missing"; `first` may be read.
    bool may_be_missing(const char* first, size_t size) const {
        return (missing_sizes_[static_cast<unsigned char>(*first)] & size_bit(size)) != 0;
    }

    bool is_missing(std::string_view field) const {
        if (field.empty()) return empty_is_missing_;
        if (!may_be_missing(field.data(), field.size())) [[likely]]
            return false;
        for (const std::string& token : missing_)
            if (token.size() == field.size() && token == field) return true;
        return false;
    }

  private:
    static bool blank(char c) { return (c == ' ') | (c == '\t'); }
    static uint64_t size_bit(size_t size) { return uint64_t{1} << std::min<size_t>(size, 63); }

    [[noreturn, gnu::noinline, gnu::cold]] void bad_span(int64_t row, int32_t begin, int32_t end) const {
        value_error("starts, ends: row ", row, ", column ", column_, " spans [", begin, ", ", end,
                    "), not a range within ", buffer_.size(), " bytes");
    }

    [[gnu::noinline]] std::string_view unescape(std::string_view field, std::string& scratch) const {
        scratch.clear();
        for (size_t i = 0; i < field.size(); ++i) {
            scratch.push_back(field[i]);
            if (field[i] == quote_ && i + 1 < field.size() && field[i + 1] == quote_) ++i;
        }
        return scratch;
    }

    std::string_view buffer_;
    std::span<const int32_t> starts_, ends_;
    std::span<const uint8_t> flags_;
    int64_t column_, n_columns_;
    bool strip_;
    char quote_;
    std::vector<std::string> missing_;
    bool empty_is_missing_ = false;
    std::array<uint64_t, 256> missing_sizes_{};  // by the first byte, a bit for each size
};

}  // namespace squall
