// Some rows of a table: checked, read, updated, added to.
#pragma once

#include <vector>

#include "table.hpp"

namespace squall {

inline void check_rows(std::span<const int64_t> rows, int64_t n) {
    for (size_t i = 0; i < rows.size(); ++i)
        if (rows[i] < 0 || rows[i] >= n) [[unlikely]]
            index_error("rows: position ", i, ": row ", rows[i], " is not in [0, ", n, ")");
}

inline int64_t count_step(int64_t* step) {
    return std::atomic_ref<int64_t>(*step).fetch_add(1, std::memory_order_acq_rel);
}

// Reads while other processes may write.
inline void gather_rows(const float* cells, int64_t stride, std::span<const int64_t> rows, int64_t dim,
                        float* out) {
    for (size_t i = 0; i < rows.size(); ++i) {
        if (i + 16 < rows.size()) __builtin_prefetch(cells + rows[i + 16] * stride);
        const float* const row = cells + rows[i] * stride;
        for (int64_t j = 0; j < dim; ++j) *out++ = load(row[j]);
    }
}

// Weights brought up to date with the first `step` steps.
template <class Full>
void pull_rows(const Full& full, std::span<const int64_t> rows, int64_t dim, int64_t step, float* out) {
    if constexpr (Full::is_lazy) {
        if (dim == 1) {
            full.pull([&](int64_t i) { return rows[static_cast<size_t>(i)]; },
                      static_cast<int64_t>(rows.size()), step, out);
            return;
        }
        for (const int64_t row : rows) full.catch_up(row, step);
    }
    gather_rows(full.row(0), full.stride(), rows, dim, out);
}

// One optimiser step.
template <class Full>
void update_rows(const Full& full, std::span<const int64_t> rows, const float* gradients, int64_t dim,
                 int64_t step) {
    const auto n = static_cast<int64_t>(rows.size());
    std::vector<float> clipped;
    if (full.rule().clips()) {
        clipped.assign(gradients, gradients + n * dim);
        full.rule().clip(clipped.data(), clipped.size());
        gradients = clipped.data();
    }
    if (dim == 1) {
        full.step_rows([&](int64_t i) { return rows[static_cast<size_t>(i)]; }, n, gradients, step);
        return;
    }
    for (int64_t i = 0; i < n; ++i) full.step_row(rows[static_cast<size_t>(i)], gradients + i * dim, step);
}

inline void add_rows(Matrix<float> cells, std::span<const int64_t> rows, const float* deltas, int64_t dim) {
    for (const int64_t i : rows) {
        float* const row = cells.row(i);
        for (int64_t j = 0; j < dim; ++j) store(row[j], load(row[j]) + *deltas++);
    }
}

}  // namespace squall
