// Where the fields of CSV records lie (RFC 4180), and how a stretch of CSV text goes on; without Python, so
// that it can be fuzzed alone.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace squall {

enum CsvFlag : uint8_t { csv_quoted = 1, csv_doubled_quotes = 2 };

// Finds the complete records of one chunk. A chunk that ends inside a record leaves that record to the
// caller, who puts it before the next chunk, so results do not depend on where a file is cut.
class CsvScanner {
  public:
    CsvScanner(std::string_view data, char delimiter, int quote, int64_t n_columns, bool is_last,
               size_t max_field, bool skip)
        : data_(data),
          delimiter_(delimiter),
          quoting_(quote != 0),
          quote_(static_cast<char>(quote)),
          is_last_(is_last),
          max_field_(max_field),
          skip_(skip),
          n_columns(n_columns) {
        for (auto* places : {&starts, &ends}) places->reserve(data.size() / 8);
        flags.reserve(data.size() / 8);
    }

    void scan() {
        while (consumed < data_.size()) {
            const size_t n_fields = starts.size();
            at_ = consumed;
            line_ = n_lines;
            if (n_columns > 0 && common_record()) {
                lines.push_back(n_lines);
                consumed = at_;
                ++n_lines;
                continue;
            }
            Status status = blank_line() ? Status::blank : record();
            if (status == Status::complete && !right_width(n_fields)) status = Status::failed;
            if (status == Status::complete) lines.push_back(n_lines);
            if (status == Status::incomplete || status == Status::failed) {
                starts.resize(n_fields);
                ends.resize(n_fields);
                flags.resize(n_fields);
                if (status == Status::incomplete || !skip_ || !skip_record()) return;
            }
            consumed = at_;
            n_lines = line_;
        }
    }

    struct Problem {
        const char* kind;
        int64_t row, line, found;
        size_t start;
    };

    static constexpr size_t max_problems = 10;
    std::vector<Problem> skipped;  // the first of them
    int64_t n_skipped = 0;
    bool failed = false;  // the scan ended before a record, because of `problem`
    Problem problem{};

    std::vector<int32_t> starts, ends;
    std::vector<uint8_t> flags;
    std::vector<int64_t> lines;  // where each record starts, counted from the chunk's first line
    size_t consumed = 0;
    int64_t n_lines = 0;

  private:
    enum class Status { complete, blank, incomplete, failed };

    Status fail(const char* kind, int64_t line, int64_t found) {
        failed = true;
        problem = {kind, static_cast<int64_t>(lines.size()), line, found, consumed};
        return Status::failed;
    }

    // Goes on behind the record that has failed; false if where that is can be said only with more data.
    bool skip_record() {
        failed = false;
        const std::string_view kind = problem.kind;
        if (kind != "fields") {  // one with too many or few is known whole
            if (kind != "quote") {
                at_ = consumed;
                line_ = n_lines;
            }
            const size_t end = data_.find('\n', at_);
            if (end == std::string_view::npos && !is_last_) return false;
            at_ = std::min(end, data_.size() - 1) + 1;
            ++line_;
        }
        ++n_skipped;
        if (skipped.size() < max_problems) skipped.push_back(problem);
        return true;
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

    // Most records: no quote, as many fields as there are columns, and a line end. Any other is left to
    // `record`, and nothing of it is kept.
    bool common_record() {
        const size_t first = starts.size(), wanted = static_cast<size_t>(n_columns);
        if (data_.size() - at_ < wanted || line_end(at_) != 0) return false;
        for (auto* places : {&starts, &ends}) places->resize(first + wanted);
        flags.resize(first + wanted);
        const size_t next = common_fields(starts.data() + first, ends.data() + first, wanted);
        if (next != 0) {
            at_ = next;
            return true;
        }
        for (auto* places : {&starts, &ends}) places->resize(first);
        flags.resize(first);
        return false;
    }

    // Where the next record begins; 0 if this one is not so common.
    size_t common_fields(int32_t* start, int32_t* end, size_t wanted) const {
        const char* const bytes = data_.data();
        size_t begin = at_, field = 0;
        for (size_t window = at_; window < data_.size(); window += 64) {
            uint64_t marks = look<true>(bytes + window, std::min<size_t>(64, data_.size() - window));
            for (; marks != 0; marks &= marks - 1) {
                const size_t at = window + static_cast<size_t>(std::countr_zero(marks));
                if (bytes[at] != delimiter_) {
                    if (bytes[at] != '\n' || field + 1 != wanted || at - at_ > max_field_) return 0;
                    start[field] = static_cast<int32_t>(begin);
                    end[field] = static_cast<int32_t>(at > begin && bytes[at - 1] == '\r' ? at - 1 : at);
                    return at + 1;
                }
                if (field + 1 == wanted) return 0;
                start[field] = static_cast<int32_t>(begin);
                end[field++] = static_cast<int32_t>(at);
                begin = at + 1;
            }
        }
        return 0;
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

    // The next delimiter or LF from `at` on. They are looked for in 64 bytes at once, which hold several.
    size_t field_end(size_t at) {
        while (at < data_.size()) {
            if (at < window_ || at - window_ >= 64) {
                window_ = at;
                found_ = look<false>(data_.data() + at, std::min<size_t>(64, data_.size() - at));
            }
            const uint64_t left = found_ >> (at - window_);
            if (left != 0) return at + static_cast<size_t>(std::countr_zero(left));
            at = window_ + 64;
        }
        return data_.size();
    }

    // A bit for each of the first n <= 64 bytes that is a delimiter or LF, or a quote where those are asked
    // for.
    template <bool with_quotes>
    uint64_t look(const char* bytes, size_t n) const {
        const bool quotes = with_quotes && quoting_;
        uint64_t found = 0;
        size_t i = 0;
#ifdef __SSE2__
        const __m128i delimiters = _mm_set1_epi8(delimiter_), newlines = _mm_set1_epi8('\n'),
                      marks = _mm_set1_epi8(quotes ? quote_ : delimiter_);
        for (; i + 16 <= n; i += 16) {
            const __m128i chars = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i));
            __m128i ends = _mm_or_si128(_mm_cmpeq_epi8(chars, delimiters), _mm_cmpeq_epi8(chars, newlines));
            if constexpr (with_quotes) ends = _mm_or_si128(ends, _mm_cmpeq_epi8(chars, marks));
            found |= static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(ends))) << i;
        }
#endif
        for (; i < n; ++i) {
            const char c = bytes[i];
            found |= uint64_t{c == delimiter_ || c == '\n' || (quotes && c == quote_)} << i;
        }
        return found;
    }

    // Leaves at_ on the delimiter, the line end or the end of the data.
    Status plain_field() {
        const size_t start = at_;
        const char* const bytes = data_.data();
        const size_t at = field_end(start);
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
    bool skip_;
    size_t window_ = std::numeric_limits<size_t>::max();  // where the last look began
    uint64_t found_ = 0;
    size_t at_ = 0;
    int64_t line_ = 0;

  public:
    int64_t n_columns;
};

// What a place in CSV text is, told by what comes before it.
// `broken`: text follows a closing quote, so nothing counts up to the line's end.
enum Place : uint8_t { record_start, field_start, plain, quoted, after_quote, broken };
constexpr size_t n_places = 6;

// Follows a stretch of text from every place that its first byte may be: where each ends up, and where its
// first record starts (-1: nowhere). The stretches of a file can so be looked at apart and joined afterwards,
// which says exactly whether a line end is within quotes.
struct Follower {
    std::array<uint8_t, n_places> ends{record_start, field_start, plain, quoted, after_quote, broken};
    std::array<int64_t, n_places> firsts{-1, -1, -1, -1, -1, -1};

    void follow(std::string_view text, char delimiter, int quote_byte) {
        const bool quoting = quote_byte != 0;
        const char quote = static_cast<char>(quote_byte);
        size_t at = 0;
        while (at < text.size()) {
            // While no quote comes only the last byte tells; a quoted place stays one.
            const size_t next = quoting ? std::min(text.find(quote, at), text.size()) : text.size();
            run(text, at, next, delimiter);
            at = next;
            if (at == text.size()) return;
            for (uint8_t& place : ends) {
                if (place == quoted)
                    place = after_quote;
                else if (place != plain && place != broken)
                    place = quoted;
            }
            ++at;
        }
    }

  private:
    // text[begin, end) holds no quote.
    void run(std::string_view text, size_t begin, size_t end, char delimiter) {
        if (begin == end) return;
        const std::string_view part = text.substr(begin, end - begin);
        const size_t newline = part.find('\n');
        const char last = part.back();
        const bool ends_quoted = part[0] == delimiter || part[0] == '\n' || part[0] == '\r';
        for (size_t i = 0; i < n_places; ++i) {
            if (ends[i] == quoted) continue;
            if (ends[i] == after_quote && !ends_quoted) ends[i] = broken;
            const bool has_newline = newline != std::string_view::npos;
            if (has_newline && firsts[i] < 0) firsts[i] = static_cast<int64_t>(begin + newline) + 1;
            if (ends[i] == broken && !has_newline) continue;
            ends[i] = last == '\n' ? record_start : last == delimiter ? field_start : plain;
        }
    }
};

}  // namespace squall
