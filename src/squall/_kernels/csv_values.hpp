// Some rows of a scanned column as values: numbers, codes of strings, slots of strings.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "csv.hpp"
#include "csv_numbers.hpp"
#include "murmur3.hpp"
#include "strings.hpp"
#include "utf8.hpp"

namespace squall {

// Where the value of row i goes.
template <class T>
struct Target {
    T* data;
    int64_t stride;
    T& operator[](int64_t i) const { return data[i * stride]; }
};

// What was seen on the way, over several calls.
struct Found {
    int evidence = 0;        // of integers all; of other numbers only that there are some
    int64_t first_bad = -1;  // the first row whose field is not as expected

    void bad(int64_t row) {
        if (first_bad < 0) first_bad = row;
    }
};

// Integers; 0 where there is none. `absent(row, is_missing)` is told of every row.
template <class Absent>
void read_int64(const CsvColumn& fields, int64_t begin, int64_t end, const Target<int64_t>& values,
                Found& found, Absent absent) {
    std::string scratch;
    for (int64_t row = begin; row < end; ++row) {
        const auto field = fields.field(row, scratch);
        const bool missing = fields.is_missing(field);
        absent(row, missing);
        values[row] = 0;
        if (missing) continue;
        const Number number = read_number(field, fields.readable(field, scratch));
        found.evidence |= number.kind;
        if (number.kind == seen_integer || number.kind == seen_wide_integer)
            values[row] = number.integer;
        else
            found.bad(row);
    }
}

// Numbers; NaN where one is missing or bad.
inline void read_float64(const CsvColumn& fields, int64_t begin, int64_t end, const Target<double>& values,
                         Found& found) {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    std::string scratch;
    for (int64_t row = begin; row < end; ++row) {
        const auto field = fields.field(row, scratch);
        values[row] = nan;
        if (fields.is_missing(field)) continue;
        double real = 0;
        const char* const last = field.data() + field.size();
        const char* const readable = fields.readable(field, scratch);
        // Below 2^53 no integer is rounded, so it does not matter whether this is one.
        if (read_decimal(field.data(), last, real, readable) == last && std::fabs(real) < 0x1p53) [[likely]] {
            values[row] = real;
            found.evidence |= seen_float;
            continue;
        }
        const Number number = read_number(field, readable);
        found.evidence |= number.kind;
        if (number.kind == seen_integer || number.kind == seen_float)
            values[row] = number.real;
        else
            found.bad(row);
    }
}

// Codes of strings; -1 where one is missing. Dictionaries are larger than a core's cache, so strings are
// asked for some rows after their place was.
inline void read_codes(const CsvColumn& fields, int64_t begin, int64_t end, const Target<int32_t>& codes,
                       Strings& strings) {
    constexpr int64_t batch = 16;
    std::string scratch[batch];
    std::string_view texts[batch];
    uint32_t hashes[batch];
    for (; begin < end; begin += batch) {
        const int64_t n = std::min(batch, end - begin);
        for (int64_t i = 0; i < n; ++i) {
            texts[i] = fields.field(begin + i, scratch[i]);
            strings.prefetch(hashes[i] = Strings::hash(texts[i]));
        }
        for (int64_t i = 0; i < n; ++i)
            codes[begin + i] = fields.is_missing(texts[i])
                                   ? -1
                                   : strings.code(texts[i], hashes[i], static_cast<size_t>(begin + i));
    }
}

// The slots of `prefix` + text, as `hash_slots` gives them; a missing text is an empty one.
class SlotReader {
  public:
    SlotReader(std::string_view prefix, uint32_t n_slots)
        : key_(prefix), prefix_(prefix.size()), n_slots_(n_slots) {}

    void read(const CsvColumn& fields, int64_t begin, int64_t end, const Target<int32_t>& slots) {
        std::string scratch;
        for (int64_t row = begin; row < end; ++row) {
            auto text = fields.field(row, scratch);
            if (!is_utf8(text)) [[unlikely]]
                not_utf8(row);
            if (!text.empty() && fields.is_missing(text)) text = {};
            slots[row] =
                static_cast<int32_t>(murmur3_32(key(text, fields.readable(text, scratch)), 0) % n_slots_);
        }
    }

  private:
    [[noreturn, gnu::noinline, gnu::cold]] static void not_utf8(int64_t row) {
        value_error("row ", row, ": the text is not valid UTF-8");
    }

    // Prefix and text. Short texts are copied with what follows them, for a copy of one size is the fastest.
    std::string_view key(std::string_view text, const char* readable) {
        const size_t size = prefix_ + text.size();
        if (key_.size() < size + at_once) key_.resize(size + at_once);
        if (text.size() <= at_once && !text.empty() && static_cast<size_t>(readable - text.data()) >= at_once)
            std::memcpy(key_.data() + prefix_, text.data(), at_once);
        else
            std::copy(text.begin(), text.end(), key_.begin() + static_cast<ptrdiff_t>(prefix_));
        return {key_.data(), size};
    }

    static constexpr size_t at_once = 16;

    std::string key_;
    size_t prefix_;
    uint32_t n_slots_;
};

}  // namespace squall
