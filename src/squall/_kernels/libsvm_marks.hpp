// Where tokens of LIBSVM text end, looked for in many bytes at once.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace squall {

// The marks of a text one after the other: blanks, line ends, colons, '#', and all control characters. A loop
// over the characters of each token would wait for the end of one before it looks for the next; here they are
// found 64 bytes at a time, and what lies between them can be read independently.
class LibsvmMarks {
  public:
    LibsvmMarks() = default;

    // Of text that may be read up to `last`.
    explicit LibsvmMarks(const char* last) : last_(last) {}

    // Goes on at `at`, which is not before the last mark; false if that is too near to the end.
    bool seek(const char* at) {
        if (at >= window_ && at - window_ < 64)
            left_ &= ~uint64_t{0} << (at - window_);
        else if (last_ - at < 64 + margin)
            return false;
        else
            look(at);
        return true;
    }

    // The next mark. Behind the last of them always the same place, where there may be none.
    const char* next() {
        while (left_ == 0) {
            if (last_ - window_ < 128 + margin) [[unlikely]]
                return window_ + 64;
            look(window_ + 64);
        }
        const char* const mark = window_ + std::countr_zero(left_);
        left_ &= left_ - 1;
        return mark;
    }

    // Bytes that may be read behind any mark.
    static constexpr std::ptrdiff_t margin = 16;

  private:
    void look(const char* bytes) {
        window_ = bytes;
        left_ = 0;
#ifdef __SSE2__
        for (size_t i = 0; i < 64; i += 16) {
            const __m128i chars = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i));
            const __m128i controls = _mm_cmpeq_epi8(_mm_min_epu8(chars, _mm_set1_epi8(' ')), chars);
            const __m128i colons = _mm_cmpeq_epi8(chars, _mm_set1_epi8(':'));
            const __m128i comments = _mm_cmpeq_epi8(chars, _mm_set1_epi8('#'));
            const __m128i marks = _mm_or_si128(_mm_or_si128(controls, colons), comments);
            left_ |= static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(marks))) << i;
        }
#else
        for (size_t i = 0; i < 64; ++i) {
            const auto c = static_cast<unsigned char>(bytes[i]);
            left_ |= uint64_t{c <= ' ' || c == ':' || c == '#'} << i;
        }
#endif
    }

    const char* last_ = nullptr;
    const char* window_ = nullptr;  // 64 bytes from here on have been looked at
    uint64_t left_ = 0;             // marks in it that come next
};

}  // namespace squall
