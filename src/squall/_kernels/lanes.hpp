// Rows of vectors: what topic models compute with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

#include "arrays.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SQUALL_WIDER [[gnu::target_clones("avx2", "default")]]
#else
#define SQUALL_WIDER
#endif

namespace squall {

constexpr int64_t lanes = 8;  // numbers in a vector
using Lanes [[gnu::vector_size(lanes * sizeof(float)), gnu::may_alias]] = float;

// Rows of vectors, not set but for zeros behind the last column.
class Rows {
  public:
    Rows(int64_t n, int64_t columns)
        : n_(n), width_((columns + lanes - 1) / lanes), cells_(new_cells(n * width_ * lanes)) {
        for (int64_t i = 0; i < n; ++i) std::fill(numbers(i) + columns, numbers(i + 1), 0.0f);
    }

    int64_t n() const { return n_; }
    int64_t width() const { return width_; }  // in vectors
    Lanes* row(int64_t i) { return reinterpret_cast<Lanes*>(numbers(i)); }
    const Lanes* row(int64_t i) const { return reinterpret_cast<const Lanes*>(numbers(i)); }
    float* numbers(int64_t i) { return cells_.get() + i * width_ * lanes; }
    const float* numbers(int64_t i) const { return cells_.get() + i * width_ * lanes; }

    void read(Matrix<const float> from) {
        for (int64_t i = 0; i < n_; ++i) std::copy_n(from.row(i), from.columns, numbers(i));
    }
    void write(Matrix<float> to) const {
        for (int64_t i = 0; i < n_; ++i) std::copy_n(numbers(i), to.columns, to.row(i));
    }

  private:
    static constexpr std::align_val_t alignment{64};
    struct Delete {
        void operator()(float* cells) const { ::operator delete(cells, alignment); }
    };
    static float* new_cells(int64_t n) {
        return static_cast<float*>(::operator new(static_cast<size_t>(n) * sizeof(float), alignment));
    }

    int64_t n_, width_;
    std::unique_ptr<float, Delete> cells_;
};

[[gnu::always_inline]] inline float total(const Lanes& x) {
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

}  // namespace squall
