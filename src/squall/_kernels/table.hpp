// A parameter table: float32 rows of [dim weights | dim * n_state optimiser state | step stamp if lazy].
// A touched row is one cache line for dim = 1. Other processes may change the same table at any time
// without locks (Hogwild; Niu et al. 2011), so every element is read and written as a relaxed atomic,
// which is a plain move to the processor.
//
// The stamp is an int32 kept bit for bit in the float slot: how many steps the row is up to date with. A row
// is caught up when it is read, so a minibatch touches its own rows only.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
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

// Four side by side, wherever they lie: plain moves too, each float of which is whole on every processor that
// this is built for.
using Four = float __attribute__((vector_size(16)));

template <class Vector>
[[gnu::always_inline]] inline void read(Vector& to, const float* from) {
    std::memcpy(&to, from, sizeof(Vector));
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

// `lazy` tables have the stamp; others are cheaper, but need rows that stay as they are between gradients, or
// callers that step every row.
template <class Optimizer, bool lazy>
class Table {
  public:
    using State = typename Optimizer::State;
    static constexpr int n_state = Optimizer::n_state;
    static constexpr bool is_lazy = lazy;

    Table(Matrix<float> cells, int64_t dim, Optimizer optimizer, const Rule& rule, int64_t n_regularized)
        : cells_(cells),
          dim_(dim),
          optimizer_(optimizer),
          rule_(rule),
          regularizer_(rule.l1(), rule.l2()),
          n_regularized_(rule.penalized() ? n_regularized : 0) {}

    int64_t rows() const { return cells_.rows; }
    int64_t stride() const { return cells_.columns; }
    float* row(int64_t i) const { return cells_.row(i); }
    const Rule& rule() const { return rule_; }

    // Brings a row up to date with the first `step` steps.
    void catch_up(int64_t i, int64_t step) const {
        if constexpr (lazy) catch_up(cells_.row(i), i < n_regularized_, dim_, step);
    }

    // Weights of rows `id(0) .. id(n - 1)` of a table with dim = 1, caught up.
    template <class Id>
    void pull(Id id, int64_t n, int64_t step, float* weights) const {
        const Matrix<float> cells = cells_;
        if constexpr (lazy && Optimizer::idle == Idle::rests) {
            for (int64_t begin = 0; begin < n; begin += lanes)
                pull_lanes([&](int k) { return id(begin + k); },
                           static_cast<int>(std::min<int64_t>(lanes, n - begin)), step, weights + begin);
        } else {
            for (int64_t i = 0; i < n; ++i) {
                const int64_t at = id(i);
                if constexpr (lazy) catch_up(cells.row(at), at < n_regularized_, 1, step);
                weights[i] = load(*cells.row(at));
            }
        }
    }

    // One optimiser step on rows `id(0) .. id(n - 1)` of a table with dim = 1. Weights are read again
    // here, not taken from when the gradient was computed, so that little of what other processes wrote
    // meanwhile is lost.
    template <class Id>
    void step_rows(Id id, int64_t n, const float* gradients, int64_t step) const {
        const Matrix<float> cells = cells_;
        const int64_t n_regularized = n_regularized_;
        const Moment now = moment(step);
        for (int64_t begin = 0; begin < n; begin += lanes) {
            const int count = static_cast<int>(std::min<int64_t>(lanes, n - begin));
            Lanes<lanes> x;
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
            take_step(x, now);
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
        const Moment now = moment(step);
        catch_up(i, step);
        int64_t j = 0;
        const auto step_some = [&]<int n>(std::integral_constant<int, n>) {
            Lanes<n> x;
            std::fill_n(x.regularized, n, regularized);
            x.load_all(cells + j, dim_);
            std::copy_n(gradients + j, n, x.gradient);
            take_step(x, now);
            x.store_all(cells + j, dim_);
            j += n;
        };
        while (j + lanes <= dim_) step_some(std::integral_constant<int, lanes>());
        if (j + 8 <= dim_) step_some(std::integral_constant<int, 8>());
        if (j + 4 <= dim_) step_some(std::integral_constant<int, 4>());
        while (j < dim_) step_some(std::integral_constant<int, 1>());
        if constexpr (lazy) stamp_step(cells, dim_, step);
    }

  private:
    // Enough weights side by side to use the vector unit; few enough that little time passes between
    // reading a weight and writing it.
    static constexpr int lanes = 16;
    template <int n>
    struct Lanes {
        alignas(4 * (n < 8 ? n : 8)) float weight[n], gradient[n], regularized[n];
        alignas(4 * (n < 8 ? n : 8)) float state[n_state == 0 ? 1 : n_state][n];

        void clear() { *this = Lanes{}; }
        void load(int k, const float* cell, int64_t distance) {
            weight[k] = squall::load(cell[0]);
            for (int s = 0; s < n_state; ++s) state[s][k] = squall::load(cell[distance * (1 + s)]);
        }
        void store(int k, float* cell, int64_t distance) const {
            squall::store(cell[0], weight[k]);
            for (int s = 0; s < n_state; ++s) squall::store(cell[distance * (1 + s)], state[s][k]);
        }
        // Of neighbours in one row.
        void load_all(const float* cells, int64_t distance) {
            std::memcpy(weight, cells, sizeof(weight));
            for (int s = 0; s < n_state; ++s)
                std::memcpy(state[s], cells + distance * (1 + s), sizeof(weight));
        }
        void store_all(float* cells, int64_t distance) const {
            std::memcpy(cells, weight, sizeof(weight));
            for (int s = 0; s < n_state; ++s)
                std::memcpy(cells + distance * (1 + s), state[s], sizeof(weight));
        }
    };

    // A step of rows that are regularised; of others l1 and l2 are 0.
    Moment moment(int64_t step) const {
        const double done = static_cast<double>(step) + 1;
        return {static_cast<float>(rule_.pace().at(step)), rule_.l1() * done, rule_.l2() * done};
    }

    template <int n>
    void take_step(Lanes<n>& x, const Moment& now) const {
        const Optimizer optimizer = optimizer_;
        float rate[n];
        for (int k = 0; k < n; ++k) {
            State state;
            for (int s = 0; s < n_state; ++s) state[s] = x.state[s][k];
            const Moment own{now.pace, now.l1 * x.regularized[k], now.l2 * x.regularized[k]};
            rate[k] = optimizer.step(x.weight[k], x.gradient[k], state, own);
            for (int s = 0; s < n_state; ++s) x.state[s][k] = state[s];
        }
        if (n_regularized_ == 0 || Optimizer::idle == Idle::follows) return;
        const Regularizer regularizer = regularizer_;
        for (int k = 0; k < n; ++k) x.weight[k] = regularizer.step(x.weight[k], rate[k] * x.regularized[k]);
    }

    // As catch_up for each, side by side.
    template <class Id>
    void pull_lanes(Id id, int count, int64_t step, float* weights) const {
        const Optimizer optimizer = optimizer_;
        const Regularizer regularizer = regularizer_;
        const Pace& pace = rule_.pace();
        Lanes<lanes> x;
        if (count < lanes) [[unlikely]]
            x.clear();
        alignas(32) float first[lanes] = {}, second[lanes] = {}, third[lanes] = {};  // of the gaps
        alignas(32) float left[lanes], doubt[lanes];
        int64_t from[lanes];
        float* at[lanes];
        for (int k = 0; k < count; ++k) {
            const int64_t i = id(k);
            at[k] = cells_.row(i);
            x.load(k, at[k], 1);
            float& stamp = at[k][1 + n_state];
            const int64_t done = load_stamp(stamp);
            store_stamp(stamp, std::max(done, step));
            from[k] = i < n_regularized_ ? std::min(done, step) : step;
            first[k] = static_cast<float>(step - from[k]);
        }
        if (pace.is_constant()) {
            const float level = pace.level();
            for (int k = 0; k < lanes; ++k) {
                first[k] *= level;
                second[k] = first[k] * level;
                third[k] = second[k] * level;
            }
        } else {
            for (int k = 0; k < count; ++k) {
                const typename Regularizer::Gap gap(pace.sums(from[k], step));
                first[k] = gap.first;
                second[k] = gap.second;
                third[k] = gap.third;
            }
        }
        for (int k = 0; k < lanes; ++k) {
            State state;
            for (int s = 0; s < n_state; ++s) state[s] = x.state[s][k];
            left[k] = regularizer.few_steps(x.weight[k], optimizer.rate(state),
                                            {first[k], second[k], third[k]}, doubt[k]);
        }
        for (int k = 0; k < count; ++k) {
            if (from[k] == step) continue;
            if (!(doubt[k] < 1)) [[unlikely]] {
                State state;
                for (int s = 0; s < n_state; ++s) state[s] = x.state[s][k];
                left[k] = regularizer.many_steps(x.weight[k], optimizer.rate(state), pace, from[k], step);
            }
            squall::store(*at[k], left[k]);
        }
        // Read again, for a row may be in here twice, and only its first place has caught it up.
        for (int k = 0; k < count; ++k) weights[k] = squall::load(*at[k]);
    }

    void catch_up(float* cells, bool regularized, int64_t dim, int64_t step) const {
        float& stamp = cells[dim * (1 + n_state)];
        const int64_t from = load_stamp(stamp);
        if (from >= step) return;
        store_stamp(stamp, step);
        if (!regularized && Optimizer::idle != Idle::drifts) return;
        for (int64_t j = 0; j < dim; ++j) {
            float weight = load(cells[j]);
            if (weight == 0 && Optimizer::idle == Idle::rests) continue;
            State state;
            for (int s = 0; s < n_state; ++s) state[s] = load(cells[dim * (1 + s) + j]);
            idle(weight, state, regularized, from, step);
            store(cells[j], weight);
            if constexpr (Optimizer::idle == Idle::drifts)
                for (int s = 0; s < n_state; ++s) store(cells[dim * (1 + s) + j], state[s]);
        }
    }

    // Steps `from` to `to - 1` of a weight that no gradient reached.
    void idle(float& weight, State& state, bool regularized, int64_t from, int64_t to) const {
        if constexpr (Optimizer::idle == Idle::rests) {
            weight = regularizer_.steps(weight, optimizer_.rate(state), rule_.pace(), from, to);
        } else if constexpr (Optimizer::idle == Idle::follows) {
            const auto done = static_cast<double>(to);
            weight = optimizer_.weight(state, weight, rule_.l1() * done, rule_.l2() * done);
        } else if (!regularized) {
            optimizer_.drift(weight, state, to - from);
        } else {
            drift_and_shrink(weight, state, from, to);
        }
    }

    // A weight that drifts may be taken through 0, where l1 acts the other way round; so step by step as
    // long as there is drift to be seen, and in closed form from there.
    void drift_and_shrink(float& weight, State& state, int64_t from, int64_t to) const {
        const double rate = optimizer_.rate(state), l1 = rule_.l1(), l2 = rule_.l2();
        double w = weight, velocity = state[0];
        int64_t at = from;
        rule_.pace().stretches(from, to, [&](double level, int64_t n) {
            const double cut = rate * level * l1, shrink = 1 / (1 + rate * level * l2);
            for (; n > 0; --n, ++at) {
                if (optimizer_.reach(velocity) <= 1e-9 * std::fabs(w) + 1e-12) return false;
                optimizer_.drift_once(w, velocity);
                w = std::copysign(std::max(std::fabs(w) - cut, 0.0) * shrink, w);
            }
            return true;
        });
        state[0] = static_cast<float>(velocity * rule_.decay(to - at));
        weight = static_cast<float>(w);
        if (at < to) weight = regularizer_.steps(weight, static_cast<float>(rate), rule_.pace(), at, to);
    }

    // Counts from what is there, not from `step`: if another process stepped this row meanwhile, both count.
    static void stamp_step(float* cells, int64_t dim, int64_t step) {
        float& stamp = cells[dim * (1 + n_state)];
        store_stamp(stamp, std::min(std::max<int64_t>(load_stamp(stamp), step) + 1, max_step));
    }

    Matrix<float> cells_;
    int64_t dim_;
    Optimizer optimizer_;
    const Rule& rule_;
    Regularizer regularizer_;
    int64_t n_regularized_;
};

// Checks a table, then calls `use` with the Table that it makes with this rule. `every_row_steps`: the caller
// steps all rows each time, so that no row is ever behind and none needs a stamp.
template <class Use>
auto with_table(const Buffer& array, int64_t dim, const Rule& rule, int64_t n_regularized_rows,
                bool every_row_steps, Use use) {
    const auto cells = matrix<float>(array, "table");
    if (dim < 1 || dim > cells.columns) value_error("dim: is ", dim, ", which does not fit the table");
    if (n_regularized_rows < 0 || n_regularized_rows > cells.rows)
        value_error("n_regularized_rows: ", n_regularized_rows, " is not in [0, ", cells.rows, "]");
    return with_optimizer(rule, [&](auto optimizer) {
        using Optimizer = decltype(optimizer);
        const int64_t plain = dim * (1 + Optimizer::n_state);
        if (cells.columns == plain + 1)
            return use(Table<Optimizer, true>(cells, dim, optimizer, rule, n_regularized_rows));
        if (cells.columns != plain)
            value_error("table: has ", cells.columns, " columns; this optimizer with dim ", dim, " needs ",
                        plain, ", or ", plain + 1, " with a stamp");
        if (!every_row_steps && (rule.penalized() || Optimizer::idle == Idle::drifts))
            value_error("table: has no column for the step, which l1, l2 and momentum need");
        return use(Table<Optimizer, false>(cells, dim, optimizer, rule, n_regularized_rows));
    });
}

}  // namespace squall
