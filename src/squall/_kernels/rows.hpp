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

// A row some places ahead will be read, or written to.
template <int write>
[[gnu::always_inline]] inline void fetch_ahead(const float* cells, int64_t stride,
                                               std::span<const int64_t> rows, size_t i, int64_t dim) {
    constexpr size_t ahead = 8;
    if (i + ahead >= rows.size()) return;
    const float* const row = cells + rows[i + ahead] * stride;
    for (int64_t j = 0; j < dim; j += 16) __builtin_prefetch(row + j, write);
}

// Reads while other processes may write.
inline void gather_rows(const float* cells, int64_t stride, std::span<const int64_t> rows, int64_t dim,
                        float* out) {
    for (size_t i = 0; i < rows.size(); ++i, out += dim) {
        fetch_ahead<0>(cells, stride, rows, i, dim);
        const float* const row = cells + rows[i] * stride;
        int64_t j = 0;
        for (; j + 4 <= dim; j += 4) {
            Four four;
            read(four, row + j);
            std::memcpy(out + j, &four, sizeof(four));
        }
        for (; j < dim; ++j) out[j] = load(row[j]);
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

inline void add_rows(Matrix<float> cells, std::span<const int64_t> rows, const float* deltas, int64_t dim,
                     float scale = 1.0f) {
    for (size_t i = 0; i < rows.size(); ++i, deltas += dim) {
        fetch_ahead<1>(cells.data, cells.columns, rows, i, dim);
        float* const row = cells.row(rows[i]);
        int64_t j = 0;
        for (; j + 4 <= dim; j += 4) {
            Four held, delta;
            read(held, row + j);
            read(delta, deltas + j);
            held += delta * scale;
            std::memcpy(row + j, &held, sizeof(held));
        }
        for (; j < dim; ++j) store(row[j], load(row[j]) + deltas[j] * scale);
    }
}

}  // namespace squall
