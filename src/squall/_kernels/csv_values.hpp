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
#include "decimal_blocks.hpp"
#include "prefixed_hash.hpp"
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
        const char* const readable = fields.readable(field, scratch);
        const bool missing = fields.is_missing(field);
        absent(row, missing);
        if (Fixed fixed; !missing && field.size() <= 16 &&
                         read_fixed(field.data(), field.size(), readable, fixed) && fixed.whole &&
                         fixed.mantissa < uint64_t{1} << 53) [[likely]] {
            const auto magnitude = static_cast<int64_t>(fixed.mantissa);
            values[row] = fixed.negative ? -magnitude : magnitude;
            found.evidence |= seen_integer;
            continue;
        }
        values[row] = 0;
        if (missing) continue;
        const Number number = read_number(field, readable);
        found.evidence |= number.kind;
        if (number.kind == seen_integer || number.kind == seen_wide_integer)
            values[row] = number.integer;
        else
            found.bad(row);
    }
}

// Most numbers, and NaN for a missing one that is empty; false: ask again. That one is empty is not foretold,
// so it takes no branch of its own.
inline bool read_common_float64(const CsvColumn& fields, std::string_view field, const char* readable,
                                double& real) {
    Fixed fixed;
    if (field.size() > 16) {
        if (fields.may_be_missing(field.data(), field.size()) ||
            !read_fixed(field.data(), field.size(), readable, fixed))
            return false;
        real = fixed.value();
        return std::fabs(real) < 0x1p53;
    }
    if (readable - field.data() < 16) return false;
    const bool is_number = read_fixed(field.data(), field.size(), readable, fixed);
    const bool is_empty = field.empty(), may_be_missing = fields.may_be_missing(field.data(), field.size());
    if (!((is_number & !may_be_missing) | (is_empty & fields.empty_is_missing())) ||
        fixed.mantissa >= uint64_t{1} << 53) [[unlikely]]
        return false;
    const double value =
        with_sign(static_cast<double>(fixed.mantissa) / powers_of_ten[static_cast<size_t>(fixed.places)],
                  fixed.negative);
    real = is_empty ? std::numeric_limits<double>::quiet_NaN() : value;
    return true;
}

// Numbers; NaN where one is missing or bad.
inline void read_float64(const CsvColumn& fields, int64_t begin, int64_t end, const Target<double>& values,
                         Found& found) {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    std::string scratch;
    for (int64_t row = begin; row < end; ++row) {
        const auto field = fields.field(row, scratch);
        const char* const readable = fields.readable(field, scratch);
        double real = nan;
        // Below 2^53 no integer is rounded, so it does not matter whether this is one.
        if (read_common_float64(fields, field, readable, real)) [[likely]] {
            values[row] = real;
            found.evidence |= std::isnan(real) ? 0 : seen_float;
            continue;
        }
        values[row] = nan;
        if (fields.is_missing(field)) continue;
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
    SlotReader(std::string_view prefix, uint32_t n_slots) : hash_(prefix), n_slots_(n_slots) {}

    void read(const CsvColumn& fields, int64_t begin, int64_t end, const Target<int32_t>& slots) {
        std::string scratch;
        for (int64_t row = begin; row < end; ++row) {
            const auto text = fields.field(row, scratch);
            uint32_t hash = 0;
            if (!common_hash(fields, text, fields.readable(text, scratch), hash)) [[unlikely]] {
                if (!is_utf8(text)) not_utf8(row);
                hash = hash_(fields.is_missing(text) ? std::string_view{} : text);
            }
            slots[row] = static_cast<int32_t>(hash % n_slots_);
        }
    }

  private:
    // Of most texts: short ones of ASCII that do not mean "missing".
    bool common_hash(const CsvColumn& fields, std::string_view text, const char* readable,
                     uint32_t& hash) const {
        if (text.size() > 16 || readable - text.data() < 16) return false;
        const ShortText words(text.data(), text.size());
        hash = hash_(words);
        return words.is_ascii() & !(fields.may_be_missing(text.data(), text.size()) & !text.empty());
    }

    [[noreturn, gnu::noinline, gnu::cold]] static void not_utf8(int64_t row) {
        value_error("row ", row, ": the text is not valid UTF-8");
    }

    PrefixedHash hash_;
    uint32_t n_slots_;
};

}  // namespace squall
