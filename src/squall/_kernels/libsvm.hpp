// LIBSVM / SVMlight text to compressed sparse rows; without Python, so that it can be fuzzed alone.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "decimal.hpp"

namespace squall {

// A vector that leaves new memory as it is and keeps what it has when it is emptied.
template <class T>
class Growing {
  public:
    void push(T value) {
        if (size_ == capacity_) [[unlikely]]
            grow();
        data_[size_++] = value;
    }
    size_t size() const { return size_; }
    void resize_down(size_t size) { size_ = std::min(size, size_); }
    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    T& operator[](size_t i) { return data_[i]; }

  private:
    void grow() {
        const size_t wanted = std::max<size_t>(1024, 2 * capacity_);
        auto larger = std::make_unique_for_overwrite<T[]>(wanted);
        std::copy_n(data_.get(), size_, larger.get());
        data_ = std::move(larger);
        capacity_ = wanted;
    }

    std::unique_ptr<T[]> data_;
    size_t size_ = 0, capacity_ = 0;
};

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
        const size_t newline = text.rfind('\n');
        if (newline == std::string_view::npos) return 0;
        last_ = text.data() + newline;
        const char* at = text.data();
        while (at <= last_) {
            line_ = at;
            const char* const next = row(at);
            if (next == nullptr) return static_cast<size_t>(line_ - text.data());
            at = next;
            ++n_lines;
        }
        return newline + 1;
    }

    // What was read since the last time. Indices count from 0.
    Growing<int64_t> ends;  // of each row's entries
    Growing<int32_t> indices;
    Growing<double> values;
    Growing<int32_t> labels;  // places in `label_values`
    Growing<int64_t> qids;
    bool all_ones = true;

    void clear() {
        ends.resize_down(0);
        indices.resize_down(0);
        values.resize_down(0);
        labels.resize_down(0);
        qids.resize_down(0);
        all_ones = true;
    }

    // Over all that was read.
    int64_t n_lines = 0, n_rows = 0, n_dropped = 0, n_skipped = 0;
    int64_t least = std::numeric_limits<int64_t>::max(), largest = -1;  // indices as they stand in the text
    std::optional<bool> has_labels, has_qids;
    std::vector<double> label_values;  // different labels in the order of first sight
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
        Row found;
        const char* const read = fields(at, n_before, found);
        if (read != nullptr) [[likely]] {
            keep(found);
            return next_line(read);
        }
        indices.resize_down(n_before);
        values.resize_down(n_before);
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
        ends.push(static_cast<int64_t>(indices.size()));
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
            int64_t index = 0;
            while (is_digit(*at) && at - token < 11) index = index * 10 + (*at++ - '0');
            if (at == token || *at != ':') [[unlikely]] {
                at = odd_index(token, index);
                if (at == nullptr) return nullptr;
            }
            const char* const text = ++at;
            double value = 1;
            if (*at == '1' && ends_token(at + 1)) {
                ++at;
            } else {
                at = read_decimal(at, last_, value);
                if (at == nullptr || !ends_token(at)) [[unlikely]]
                    return bad_value(token, text);
                all_ones &= value == 1;
            }
            const int64_t place = index - settings_.base;
            if (place >= n_places_ || (place < 0 && settings_.base_is_fixed)) [[unlikely]] {
                if (!settings_.drop || place < 0 || index > max_index) return bad_place(token, place);
                ++row.n_dropped;
                continue;
            }
            row.least = std::min(row.least, index);
            row.largest = std::max(row.largest, index);
            indices.push(static_cast<int32_t>(place));
            values.push(value);
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
        const char* const end = read_decimal(at, last_, row.label);
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
            if (row.has_label) return refuse(at, "index:value, because the rows before it have no label");
            return refuse(at, "a label, as the rows before it have");
        }
        return row.has_label ? end : at;
    }

    static bool is_qid(const char* at) {  // stops at the line's end at the latest
        return *at == 'q' && at[1] == 'i' && at[2] == 'd' && at[3] == ':';
    }

    const char* qid(const char* at, Row& row) {
        row.has_qid = is_qid(at);
        if (has_qids.has_value() && *has_qids != row.has_qid) [[unlikely]] {
            if (row.has_qid) return refuse(at, "no qid, because the rows before it have none");
            return refuse(at, "qid:integer, as the rows before it have");
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
        for (size_t i = begin; i < indices.size(); ++i) sorted_.emplace_back(indices[i], values[i]);
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
                const bool sum = settings_.duplicates == Duplicates::sum;
                values[end - 1] = sum ? values[end - 1] + value : value;
                all_ones = false;
            } else {
                indices[end] = index;
                values[end++] = value;
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
    double last_label_ = std::numeric_limits<double>::quiet_NaN();
    int32_t last_code_ = -1;
    std::unordered_map<double, int32_t> label_codes_;
    std::vector<std::pair<int32_t, double>> sorted_;
};

}  // namespace squall
