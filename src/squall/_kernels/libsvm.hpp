// LIBSVM / SVMlight text to compressed sparse rows; without Python, so that it can be fuzzed alone.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "decimal_blocks.hpp"
#include "growing.hpp"
#include "libsvm_marks.hpp"

namespace squall {

enum class Duplicates { refuse, sum, last };

struct LibsvmSettings {
    int base;            // index of the first feature
    bool base_is_fixed;  // if not, an index 0 where base is 1 is noted, not refused
    int64_t n_features;  // a wider row is refused; none if < 0
    bool drop;           // ... or what is too wide in it is left out
    Duplicates duplicates;
    bool skip;  // rows that cannot be read are left out and counted
};

struct LibsvmProblem {
    int64_t line;    // of what this parser has read, from 0
    int64_t column;  // byte in the line, from 0
    std::string token, what;
};

// Reads whole lines: `label [qid:integer] index:value ... [# comment]`. Rows add up until they are taken.
class LibsvmParser {
  public:
    static constexpr int64_t max_index = std::numeric_limits<int32_t>::max();
    static constexpr size_t max_problems = 10;

    explicit LibsvmParser(const LibsvmSettings& settings)
        : settings_(settings), n_places_(settings.n_features < 0 ? max_index : settings.n_features) {}

    // `text` must end with a line end (only its whole lines are read). Returns the bytes that were read:
    // all whole lines, unless a row was refused.
    size_t feed(std::string_view text) {
        begin(text.size());
        const size_t newline = text.rfind('\n');
        if (newline == std::string_view::npos) return 0;
        last_ = text.data() + newline;
        marks_ = LibsvmMarks(last_);
        const char* at = text.data();
        while (at <= last_) {
            line_ = at;
            const char* next = common_row(at);
            if (next == nullptr) next = row(at);
            if (next == nullptr) return static_cast<size_t>(line_ - text.data());
            at = next;
            ++n_lines;
        }
        return newline + 1;
    }

    // Makes room for what so many bytes may hold: an entry has at least four, a row two.
    void begin(size_t n_bytes) {
        most_entries_ = n_bytes / 4 + 1;
        const size_t most_rows = n_bytes / 2 + 2;
        indices.reserve(most_entries_);
        if (!all_ones) values.reserve(most_entries_);
        indptr.reserve(most_rows);
        labels.reserve(most_rows);
        qids.reserve(most_rows);
        if (indptr.size() == 0) indptr.push(0);
    }

    // What was read since the last time. Indices count from 0.
    Growing<int64_t> indptr;
    Growing<int32_t> indices;
    Growing<double> values;   // none as long as all are 1
    Growing<int32_t> labels;  // places in `label_values`
    Growing<int64_t> qids;
    bool all_ones = true;

    void clear() {
        indptr.resize_down(0);
        indices.resize_down(0);
        values.resize_down(0);
        labels.resize_down(0);
        qids.resize_down(0);
        all_ones = true;
    }

    // Over all that was read.
    int64_t n_lines = 0, n_rows = 0, n_dropped = 0, n_skipped = 0;
    int64_t least = std::numeric_limits<int64_t>::max(), largest = -1;  // indices as they stand in the text
    std::optional<bool> has_labels, has_qids;  // if nothing is given, as the first row
    std::vector<double> label_values;          // different labels in the order of first sight
    std::vector<LibsvmProblem> problems;

    int32_t label_code(double label) {
        if (label == last_label_) return last_code_;
        label += 0.0;  // one zero
        const auto found = label_codes_.try_emplace(label, static_cast<int32_t>(label_values.size()));
        if (found.second) label_values.push_back(label);
        last_label_ = label;
        return last_code_ = found.first->second;
    }

    void forget_labels() {
        label_values.clear();
        label_codes_.clear();
        last_label_ = std::numeric_limits<double>::quiet_NaN();
    }

  private:
    enum Kind : uint8_t { other, blank, line_end };

    static constexpr std::array<Kind, 256> kinds = [] {
        std::array<Kind, 256> kinds{};
        kinds[' '] = kinds['\t'] = blank;
        kinds['\n'] = kinds['#'] = line_end;
        return kinds;
    }();

    static Kind kind(char c) { return kinds[static_cast<unsigned char>(c)]; }

    // Every line ends with LF at or before last_, so whatever stops at one stays inside the text. A CR counts
    // as a line end only before the LF.
    static bool ends_here(const char* at) { return kind(*at) == line_end || (*at == '\r' && at[1] == '\n'); }
    static bool ends_token(const char* at) { return kind(*at) != other || (*at == '\r' && at[1] == '\n'); }

    static const char* skip_blanks(const char* at) {
        while (kind(*at) == blank) ++at;
        return at;
    }

    const char* next_line(const char* at) const {
        return static_cast<const char*>(std::memchr(at, '\n', static_cast<size_t>(last_ - at) + 1)) + 1;
    }

    // What a row says beside its entries; kept once the whole row is read.
    struct Row {
        bool has_label = false, has_qid = false;
        double label = 0;
        int64_t qid = 0, n_dropped = 0;
        int64_t least = std::numeric_limits<int64_t>::max(), largest = -1;
    };

    // The start of the next line; null if the row is refused.
    const char* row(const char* at) {
        at = skip_blanks(at);
        if (ends_here(at)) return next_line(at);
        const size_t n_before = indices.size();
        const bool were_ones = all_ones;
        Row found;
        const char* const read = fields(at, n_before, found);
        if (read != nullptr) [[likely]] {
            keep(found);
            return next_line(read);
        }
        forget_row(n_before, were_ones);
        if (!settings_.skip) return nullptr;
        ++n_skipped;
        return next_line(line_);
    }

    void keep(const Row& row) {
        has_labels = row.has_label;
        has_qids = row.has_qid;
        if (row.has_label) labels.push(label_code(row.label));
        if (row.has_qid) qids.push(row.qid);
        least = std::min(least, row.least);
        largest = std::max(largest, row.largest);
        n_dropped += row.n_dropped;
        ++n_rows;
        indptr.push(static_cast<int64_t>(indices.size()));
    }

    void add(int64_t place, double value) {
        indices.push(static_cast<int32_t>(place));
        if (!all_ones) values.push(value);
    }

    // From here on values are kept, because one is not 1.
    [[gnu::noinline, gnu::cold]] void keep_values() {
        all_ones = false;
        values.reserve(indices.size() + most_entries_);
        for (size_t i = 0; i < indices.size(); ++i) values.push(1);
    }

    // Most rows: a label, and behind one blank each index:value, in ascending order. Returns the next line;
    // null for a row that is not so common, of which nothing is kept.
    const char* common_row(const char* at) {
        if (!marks_.seek(at)) return nullptr;
        const size_t n_before = indices.size();
        const bool were_ones = all_ones;
        Row found;
        const char* const read = common_fields(at, found);
        if (read != nullptr) [[likely]] {
            keep(found);
            return read + 1;
        }
        forget_row(n_before, were_ones);
        return nullptr;
    }

    void forget_row(size_t n_before, bool were_ones) {
        indices.resize_down(n_before);
        all_ones = were_ones;
        values.resize_down(were_ones ? 0 : n_before);
    }

    // Returns the line's LF. What is counted up is kept in local variables: the compiler must believe that
    // members are written to through any pointer.
    const char* common_fields(const char* at, Row& row) {
        LibsvmMarks marks = marks_;
        const char* stop = marks.next();
        if (!has_labels.value_or(true) || has_qids.value_or(false)) return nullptr;
        if (read_decimal(at, stop, row.label, last_) != stop || std::fabs(row.label) >= 0x1p53)
            return nullptr;
        row.has_label = true;
        int32_t* next_index = indices.end();
        double* next_value = all_ones ? nullptr : values.end();
        const int64_t base = settings_.base, n_places = n_places_;
        int64_t least = row.least, largest = row.largest;
        while (*stop == ' ') {
            const char* const token = stop + 1;
            const char* const colon = marks.next();
            if (*colon != ':') {  // a blank before the line's end
                stop = colon;
                if (stop != token) return nullptr;
                break;
            }
            stop = marks.next();
            uint64_t digits = 0;
            double value = 1;
            if (stop <= colon || !read_index(token, colon, digits)) [[unlikely]]
                return nullptr;
            if (stop - colon != 2 || colon[1] != '1') {
                if (!read_value(colon + 1, stop, value)) [[unlikely]]
                    return nullptr;
                if (next_value == nullptr && value != 1) [[unlikely]] {
                    indices.grow_to(next_index);
                    keep_values();
                    next_value = values.end();
                }
            }
            const auto index = static_cast<int64_t>(digits), place = index - base;
            if (static_cast<uint64_t>(place) >= static_cast<uint64_t>(n_places) || index <= largest)
                [[unlikely]]
                return nullptr;
            least = std::min(least, index);
            largest = index;
            *next_index++ = static_cast<int32_t>(place);
            if (next_value != nullptr) *next_value++ = value;
        }
        if (*stop == '\r') {
            const char* const next = marks.next();
            if (next != stop + 1) return nullptr;  // it is no line end
            stop = next;
        }
        if (*stop != '\n') return nullptr;
        indices.grow_to(next_index);
        if (next_value != nullptr) values.grow_to(next_value);
        row.least = least;
        row.largest = largest;
        marks_ = marks;
        return stop;
    }

    // Up to 8 digits; 8 bytes may be read from `token` on.
    static bool read_index(const char* token, const char* colon, uint64_t& index) {
        const auto n = static_cast<uint64_t>(colon - token);
        if (n - 1 >= 8) [[unlikely]]
            return false;
        uint64_t word = 0;
        std::memcpy(&word, token, 8);
        const uint64_t digits = word - 0x3030303030303030, shift = 8 * (8 - n);
        const uint64_t others = ((word + 0x4646464646464646) | digits) & 0x8080808080808080;
        index = eight_digits(digits << shift);
        return others << shift == 0;
    }

    bool read_value(const char* first, const char* stop, double& value) const {
        Fixed fixed;
        if (read_fixed(first, static_cast<size_t>(stop - first), last_, fixed)) [[likely]] {
            value = fixed.value();
            return true;
        }
        return read_decimal(first, stop, value, last_) == stop;
    }

    [[gnu::cold]] std::nullptr_t refuse(const char* at, std::string what) {
        if (problems.size() < max_problems) {
            const char* end = at;
            while (!ends_token(end) && end - at < 60) ++end;
            problems.push_back({n_lines, at - line_, std::string(at, end), std::move(what)});
        }
        return nullptr;
    }

    const char* fields(const char* at, size_t n_before, Row& row) {
        const char* const start = at;
        at = label(at, row);
        if (at == nullptr) return nullptr;
        at = qid(skip_blanks(at), row);
        if (at == nullptr) return nullptr;
        int64_t previous = -1;
        bool ascending = true;
        for (;; at = skip_blanks(at)) {
            if (ends_here(at)) break;
            const char* const token = at;
            uint64_t digits = 0;
            at = read_digits(at, at + std::min<int64_t>(last_ - at, 11), last_, digits);
            auto index = static_cast<int64_t>(digits);
            if (at == token || *at != ':') [[unlikely]] {
                at = odd_index(token, index);
                if (at == nullptr) return nullptr;
            }
            const char* const text = ++at;
            double value = 1;
            if (*at == '1' && ends_token(at + 1)) {
                ++at;
            } else {
                at = read_decimal(at, last_, value, last_);
                if (at == nullptr || !ends_token(at)) [[unlikely]]
                    return bad_value(token, text);
                if (value != 1 && all_ones) keep_values();
            }
            const int64_t place = index - settings_.base;
            if (place >= n_places_ || (place < 0 && settings_.base_is_fixed)) [[unlikely]] {
                if (!settings_.drop || place < 0 || index > max_index) return bad_place(token, place);
                ++row.n_dropped;
                continue;
            }
            row.least = std::min(row.least, index);
            row.largest = std::max(row.largest, index);
            add(place, value);
            ascending &= index > previous;
            previous = index;
        }
        if (!ascending && !sort_row(start, n_before)) return nullptr;
        return at;
    }

    [[gnu::noinline, gnu::cold]] std::nullptr_t bad_place(const char* token, int64_t place) {
        if (place < 0) return refuse(token, "an index of 1 or more, because the first feature is number 1");
        if (place >= max_index)
            return refuse(token, "an index below 2^31 (hash the indices into fewer features first)");
        return refuse(token, "an index up to " + std::to_string(n_places_ - 1 + settings_.base) +
                                 ", because n_features is " + std::to_string(n_places_));
    }

    // No digits, too many (`index` was then cut off after 11), or no colon behind them. Returns the colon, or
    // null.
    [[gnu::noinline, gnu::cold]] const char* odd_index(const char* token, int64_t& index) {
        const char* at = token;
        while (*at == '0') ++at;  // leading zeros
        const char* const digits = at;
        index = 0;
        while (is_digit(*at)) index = at - digits < 11 ? index * 10 + (*at - '0') : max_index + 1, ++at;
        if (*at == ':' && at > token) return at;
        if (*token == '-' && is_digit(token[1]))
            return refuse(token, "an index of 0 or more, this one is negative");
        if (is_qid(token)) return refuse(token, "qid right after the label, and once");
        return refuse(token, "index:value, the index an integer");
    }

    [[gnu::noinline, gnu::cold]] std::nullptr_t bad_value(const char* token, const char* text) {
        if (ends_token(text)) return refuse(token, "a value right after the colon");
        return refuse(token, "a finite number after the colon, then a blank or the end of the line");
    }

    // Returns what follows the label, if the row has one.
    const char* label(const char* at, Row& row) {
        const char* const end = read_decimal(at, last_, row.label, last_);
        row.has_label = end != nullptr && ends_token(end);
        if (!row.has_label) [[unlikely]] {
            bool colon = false, comma = false;
            for (const char* c = at; !ends_token(c); ++c) {
                colon |= *c == ':';
                comma |= *c == ',' && !colon;
            }
            if (comma) return refuse(at, "one label (rows with several are not read)");
            if (!colon) return refuse(at, "a label, which is a finite number");
        } else if (std::fabs(row.label) >= 0x1p53) {
            return refuse(at, "a label below 2^53 (larger ones would be rounded)");
        }
        if (has_labels.has_value() && *has_labels != row.has_label) [[unlikely]] {
            if (row.has_label) return refuse(at, "index:value, because other rows have no label");
            return refuse(at, "a label, as other rows have");
        }
        return row.has_label ? end : at;
    }

    static bool is_qid(const char* at) {  // stops at the line's end at the latest
        return *at == 'q' && at[1] == 'i' && at[2] == 'd' && at[3] == ':';
    }

    const char* qid(const char* at, Row& row) {
        row.has_qid = is_qid(at);
        if (has_qids.has_value() && *has_qids != row.has_qid) [[unlikely]] {
            if (row.has_qid) return refuse(at, "no qid, because other rows have none");
            return refuse(at, "qid:integer, as other rows have");
        }
        if (!row.has_qid) return at;
        const auto parsed = std::from_chars(at + 4, last_, row.qid);
        if (parsed.ec != std::errc{} || !ends_token(parsed.ptr))
            return refuse(at, "qid: and an integer below 2^63");
        return skip_blanks(parsed.ptr);
    }

    // Sorts the entries of the last row by index, and does what is to be done about equal ones.
    [[gnu::noinline]] bool sort_row(const char* start, size_t begin) {
        sorted_.clear();
        for (size_t i = begin; i < indices.size(); ++i)
            sorted_.emplace_back(indices[i], all_ones ? 1 : values[i]);
        std::stable_sort(sorted_.begin(), sorted_.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        size_t end = begin;
        for (const auto& [index, value] : sorted_) {
            if (end > begin && indices[end - 1] == index) {
                if (settings_.duplicates == Duplicates::refuse) {
                    refuse(start, "each index once, index " +
                                      std::to_string(int64_t{index} + settings_.base) + " comes twice");
                    return false;
                }
                if (all_ones) keep_values();
                const bool sum = settings_.duplicates == Duplicates::sum;
                values[end - 1] = sum ? values[end - 1] + value : value;
            } else {
                indices[end] = index;
                if (!all_ones) values[end] = value;
                ++end;
            }
        }
        indices.resize_down(end);
        values.resize_down(end);
        return true;
    }

    LibsvmSettings settings_;
    int64_t n_places_;
    const char* line_ = nullptr;
    const char* last_ = nullptr;  // the last LF
    size_t most_entries_ = 0;     // in what is being read
    LibsvmMarks marks_;
    double last_label_ = std::numeric_limits<double>::quiet_NaN();
    int32_t last_code_ = -1;
    std::unordered_map<double, int32_t> label_codes_;
    std::vector<std::pair<int32_t, double>> sorted_;
};

}  // namespace squall
