// A parameter table: float32 rows of [dim weights | dim * n_state optimiser state | step stamp if lazy].
// A touched row is one cache line for dim = 1. Other processes may change the same table at any time
// without locks (Hogwild; Niu et al. 2011), so every element is read and written as a relaxed atomic,
// which is a plain move to the processor.
//
// The stamp is an int32 kept bit for bit in the float slot: how many regularisation steps the row has had.
// A row is caught up when it is read, so a minibatch touches its own rows only.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>

#include "arrays.hpp"
#include "optimizers.hpp"
#include "regularizer.hpp"

namespace squall {

inline float load(const float& x) {
    return std::atomic_ref<float>(const_cast<float&>(x)).load(std::memory_order_relaxed);
}
inline void store(float& x, float value) {
    std::atomic_ref<float>(x).store(value, std::memory_order_relaxed);
}
inline int32_t load_stamp(const float& x) { return std::bit_cast<int32_t>(load(x)); }
inline void store_stamp(float& x, int64_t value) {
    store(x, std::bit_cast<float>(static_cast<int32_t>(value)));
}

constexpr int64_t max_step = std::numeric_limits<int32_t>::max() - 1;

inline void check_step(int64_t step, int64_t more = 0) {
    if (step < 0 || more > max_step || step > max_step - more)
        value_error("step: ", step, " (+ ", more, ") is not in [0, 2^31 - 2]");
}

// `lazy` tables have the stamp; others are cheaper, and can be regularised only where every row takes
// every step.
template <class Optimizer, bool lazy>
class Table {
  public:
    using State = typename Optimizer::State;
    static constexpr int n_state = Optimizer::n_state;
    static constexpr bool is_lazy = lazy;

    Table(Matrix<float> cells, int64_t dim, Optimizer optimizer, Regularizer regularizer,
          int64_t n_regularized)
        : cells_(cells),
          dim_(dim),
          optimizer_(optimizer),
          regularizer_(regularizer),
          n_regularized_(regularizer.active() ? n_regularized : 0) {}

    int64_t rows() const { return cells_.rows; }
    int64_t stride() const { return cells_.columns; }
    float* row(int64_t i) const { return cells_.row(i); }

    // Brings a row up to date with the first `step` steps.
    void catch_up(int64_t i, int64_t step) const {
        if constexpr (lazy) catch_up(cells_.row(i), i < n_regularized_, dim_, step);
    }

    // Weights of `ids[0] .. ids[n - 1]` of a table with dim = 1, caught up.
    void pull(const int32_t* ids, int64_t n, int64_t step, float* weights) const {
        const Matrix<float> cells = cells_;
        for (int64_t i = 0; i < n; ++i) {
            float* const row = cells.row(ids[i]);
            if constexpr (lazy) catch_up(row, ids[i] < n_regularized_, 1, step);
            weights[i] = load(*row);
        }
    }

    // One optimiser step on rows `id(0) .. id(n - 1)` of a table with dim = 1. Weights are read again
    // here, not taken from when the gradient was computed, so that little of what other processes wrote
    // meanwhile is lost.
    template <class Id>
    void step_rows(Id id, int64_t n, const float* gradients, int64_t step) const {
        const Matrix<float> cells = cells_;
        const int64_t n_regularized = n_regularized_;
        for (int64_t begin = 0; begin < n; begin += lanes) {
            const int count = static_cast<int>(std::min<int64_t>(lanes, n - begin));
            Lanes x;
            if (count < lanes) [[unlikely]]
                x.clear();
            float* at[lanes];
            for (int k = 0; k < count; ++k) {
                const int64_t i = id(begin + k);
                at[k] = cells.row(i);
                if constexpr (lazy) catch_up(at[k], i < n_regularized, 1, step);
                x.load(k, at[k], 1);
                x.gradient[k] = gradients[begin + k];
                x.regularized[k] = i < n_regularized ? 1.0f : 0.0f;
            }
            take_step(x);
            for (int k = 0; k < count; ++k) {
                x.store(k, at[k], 1);
                if constexpr (lazy) stamp_step(at[k], 1, step);
            }
        }
    }

    // The same on one row of any width.
    void step_row(int64_t i, const float* gradients, int64_t step) const {
        float* const cells = row(i);
        const float regularized = i < n_regularized_ ? 1.0f : 0.0f;
        catch_up(i, step);
        for (int64_t begin = 0; begin < dim_; begin += lanes) {
            const int count = static_cast<int>(std::min<int64_t>(lanes, dim_ - begin));
            Lanes x = {};
            for (int k = 0; k < count; ++k) {
                x.load(k, cells + begin + k, dim_);
                x.gradient[k] = gradients[begin + k];
                x.regularized[k] = regularized;
            }
            take_step(x);
            for (int k = 0; k < count; ++k) x.store(k, cells + begin + k, dim_);
        }
        if constexpr (lazy) stamp_step(cells, dim_, step);
    }

  private:
    // Enough weights side by side to use the vector unit; few enough that little time passes between
    // reading a weight and writing it.
    static constexpr int lanes = 16;
    struct Lanes {
        alignas(32) float weight[lanes], gradient[lanes], regularized[lanes];
        alignas(32) float state[n_state == 0 ? 1 : n_state][lanes];

        void clear() { *this = Lanes{}; }
        void load(int k, const float* cell, int64_t distance) {
            weight[k] = squall::load(cell[0]);
            for (int s = 0; s < n_state; ++s) state[s][k] = squall::load(cell[distance * (1 + s)]);
        }
        void store(int k, float* cell, int64_t distance) const {
            squall::store(cell[0], weight[k]);
            for (int s = 0; s < n_state; ++s) squall::store(cell[distance * (1 + s)], state[s][k]);
        }
    };

    void take_step(Lanes& x) const {
        const Optimizer optimizer = optimizer_;
        float rate[lanes];
        for (int k = 0; k < lanes; ++k) {
            State state;
            for (int s = 0; s < n_state; ++s) state[s] = x.state[s][k];
            rate[k] = optimizer.step(x.weight[k], x.gradient[k], state);
            for (int s = 0; s < n_state; ++s) x.state[s][k] = state[s];
        }
        if (n_regularized_ == 0) return;
        const Regularizer regularizer = regularizer_;
        for (int k = 0; k < lanes; ++k)
            x.weight[k] = regularizer.step(x.weight[k], rate[k] * x.regularized[k]);
    }

    void catch_up(float* cells, bool regularized, int64_t dim, int64_t step) const {
        float& stamp = cells[dim * (1 + n_state)];
        const int64_t behind = step - load_stamp(stamp);
        if (behind <= 0) return;
        store_stamp(stamp, step);
        if (!regularized) return;
        for (int64_t j = 0; j < dim; ++j) {
            const float weight = load(cells[j]);
            if (weight == 0) continue;
            State state;
            for (int s = 0; s < n_state; ++s) state[s] = load(cells[dim * (1 + s) + j]);
            store(cells[j], regularizer_.steps(weight, optimizer_.rate(state), behind));
        }
    }

    // Counts from what is there, not from `step`: if another process stepped this row meanwhile, both count.
    static void stamp_step(float* cells, int64_t dim, int64_t step) {
        float& stamp = cells[dim * (1 + n_state)];
        store_stamp(stamp, std::min(std::max<int64_t>(load_stamp(stamp), step) + 1, max_step));
    }

    Matrix<float> cells_;
    int64_t dim_;
    Optimizer optimizer_;
    Regularizer regularizer_;
    int64_t n_regularized_;
};

struct TableSettings {
    int optimizer;
    double learning_rate, l1, l2;
    int64_t n_regularized_rows;
};

// Checks a table and its settings, then calls `use` with the Table they make. `every_row_steps`: the caller
// steps all rows each time, so the regulariser needs no stamp.
template <class Use>
auto with_table(const Buffer& array, int64_t dim, const TableSettings& settings, bool every_row_steps,
                Use use) {
    const auto cells = matrix<float>(array, "table");
    if (dim < 1 || dim > cells.columns) value_error("dim: is ", dim, ", which does not fit the table");
    if (settings.n_regularized_rows < 0 || settings.n_regularized_rows > cells.rows)
        value_error("n_regularized_rows: ", settings.n_regularized_rows, " is not in [0, ", cells.rows, "]");
    const Regularizer regularizer(settings.l1, settings.l2);
    return with_optimizer(settings.optimizer, settings.learning_rate, [&](auto optimizer) {
        using Optimizer = decltype(optimizer);
        const int64_t plain = dim * (1 + Optimizer::n_state);
        if (cells.columns == plain + 1)
            return use(
                Table<Optimizer, true>(cells, dim, optimizer, regularizer, settings.n_regularized_rows));
        if (cells.columns != plain)
            value_error("table: has ", cells.columns, " columns; this optimizer with dim ", dim, " needs ",
                        plain, ", or ", plain + 1, " with a regulariser");
        if (regularizer.active() && !every_row_steps)
            value_error("table: has no column for the step, which l1 and l2 need");
        return use(Table<Optimizer, false>(cells, dim, optimizer, regularizer, settings.n_regularized_rows));
    });
}

}  // namespace squall
