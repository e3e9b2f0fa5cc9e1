// Minibatch training of models whose table rows are several numbers wide. Like the loops of training.cpp:
// gather the rows that a minibatch touches, take its gradient there, let each row take its step. What a
// model does with gathered rows is the same whether they come from this process's memory or from a store.
#pragma once

#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "localizer.hpp"
#include "minibatches.hpp"
#include "samples.hpp"
#include "sparse.hpp"
#include "table.hpp"

namespace squall {

// Gathered rows are padded with zeros to a multiple of this, so that loops over them need no remainder.
constexpr int64_t wide_lanes = 8;

// One row of data: its entries, as numbers of gathered rows, and which sample it is.
struct Entries {
    const int32_t* numbers;
    const float* values;  // null: all ones
    int64_t size, sample;
};

// Rows gathered from a table: those of `n` features, then the intercept's, each padded.
struct Gathered {
    int64_t n, dim, width;
    std::vector<float> cells;

    explicit Gathered(int64_t dim_)
        : n(0), dim(dim_), width((dim_ + wide_lanes - 1) / wide_lanes * wide_lanes) {}

    // Room for rows that are about to be set; what pads them is, and stays, 0.
    void resize(int64_t n_features) {
        n = n_features;
        cells.resize(static_cast<size_t>((n + 1) * width));
    }
    void clear(int64_t n_features) {
        resize(n_features);
        std::fill(cells.begin(), cells.end(), 0.0f);
    }
    float* row(int64_t i) { return cells.data() + i * width; }
    const float* row(int64_t i) const { return cells.data() + i * width; }

    void read(const float* rows) {  // (n + 1, dim)
        for (int64_t i = 0; i <= n; ++i) std::copy_n(rows + i * dim, dim, row(i));
    }
    // Of a table's row, which other processes may write to.
    void set_row(int64_t i, const float* from) {
        float* const to = row(i);
        const int64_t columns = dim;
        int64_t j = 0;
        for (; j + 4 <= columns; j += 4) std::memcpy(to + j, from + j, sizeof(Four));
        for (; j < columns; ++j) to[j] = load(from[j]);
    }
    void scale(float factor) {
        for (float& cell : cells) cell *= factor;
    }
    void write(float* rows, float factor) const {
        for (int64_t i = 0; i <= n; ++i)
            for (int64_t j = 0; j < dim; ++j) rows[i * dim + j] = row(i)[j] * factor;
    }
};

class WideModel {
  public:
    explicit WideModel(bool fit_intercept) : fit_intercept_(fit_intercept) {}
    virtual ~WideModel() = default;

    bool fit_intercept() const { return fit_intercept_; }

    // Adds the gradient of these rows' losses; without an intercept its row is neither read nor written.
    virtual Sums add_gradient(std::span<const Entries> rows, const Gathered& weights,
                              Gathered& gradient) const = 0;
    virtual int64_t n_outputs() const = 0;
    virtual void outputs(const Entries& row, const Gathered& weights, float* out) const = 0;

  private:
    const bool fit_intercept_;
};

// Calls `use` with the width as a constant where it is a common one, so that loops over it unroll, else 0.
template <class Use>
auto with_width(int64_t width, Use use) {
    switch (width) {
        case 8:
            return use(std::integral_constant<int64_t, 8>());
        case 16:
            return use(std::integral_constant<int64_t, 16>());
        case 24:
            return use(std::integral_constant<int64_t, 24>());
        case 32:
            return use(std::integral_constant<int64_t, 32>());
        default:
            return use(std::integral_constant<int64_t, 0>());
    }
}

// The rows of a block: (indptr, indices, values), or (X,) of dense rows.
class BlockRows {
  public:
    explicit BlockRows(const nb::tuple& arrays, const char* indices_name = "indices") {
        if (arrays.size() == 1) {
            dense_ = matrix<float>(nb::cast<Input>(arrays[0]), "X");
        } else if (arrays.size() == 3) {
            const Input values = arrays[2].is_none() ? Input() : nb::cast<Input>(arrays[2]);
            csr_.emplace(nb::cast<Input>(arrays[0]), nb::cast<Input>(arrays[1]), values, indices_name);
        } else {
            value_error("rows: are ", arrays.size(), " arrays, (indptr, indices, values) or (X,) needed");
        }
    }

    bool dense() const { return !csr_; }
    const Csr& csr() const { return *csr_; }
    Matrix<const float> matrix_rows() const { return dense_; }
    int64_t rows() const { return csr_ ? csr_->rows() : dense_.rows; }

    void check_width(int64_t n_features) const {
        if (!csr_ && dense_.columns != n_features)
            value_error("X: has ", dense_.columns, " columns, ", n_features, " needed");
    }

  private:
    std::optional<Csr> csr_;
    Matrix<const float> dense_{};
};

// Turns rows of a block into entries whose features are numbered.
class Numbering {
  public:
    Numbering(const BlockRows& block, int64_t n_features) : block_(block), n_features_(n_features) {
        if (block.dense()) {
            ids_.resize(static_cast<size_t>(n_features));
            std::iota(ids_.begin(), ids_.end(), 0);
        }
    }

    // Of a minibatch: rows `row(0) .. row(n - 1)`. `on_feature` sees each feature first, to prefetch.
    template <class Row, class OnFeature>
    void take(Row row, int64_t n, OnFeature on_feature) {
        rows_.clear();
        block_.dense() ? take_dense(row, n) : take_sparse(row, n, on_feature);
    }

    std::span<const Entries> rows() const { return rows_; }
    int64_t n_touched() const {
        return block_.dense() ? n_features_ : static_cast<int64_t>(localizer_.size());
    }
    const int32_t* ids() const { return block_.dense() ? ids_.data() : localizer_.keys(); }

  private:
    template <class Row, class OnFeature>
    void take_sparse(Row row, int64_t n, OnFeature on_feature) {
        localizer_.clear();
        const Csr& csr = block_.csr();
        int64_t total = 0;
        for (int64_t i = 0; i < n; ++i) {
            const int64_t number = row(i);
            const auto [begin, size] = csr.row(number);
            rows_.push_back({nullptr, csr.values ? csr.values + begin : nullptr, size, number});
            total += size;
        }
        if (numbers_.size() < static_cast<size_t>(total)) numbers_.resize(static_cast<size_t>(total));
        int32_t* to = numbers_.data();
        for (Entries& entries : rows_) {
            const int32_t* const features = csr.indices.data() + csr.row(entries.sample).begin;
            const int64_t done = localizer_.insert(features, entries.size, n_features_, to, on_feature);
            if (done != entries.size) bad_index(entries.sample, done, features[done], n_features_);
            entries.numbers = to;
            to += entries.size;
        }
    }

    // Zeros are left out: they add nothing, and images are full of them.
    template <class Row>
    void take_dense(Row row, int64_t n) {
        const auto X = block_.matrix_rows();
        const auto room = static_cast<size_t>(n * X.columns);
        if (numbers_.size() < room) {
            numbers_.resize(room);
            values_.resize(room);
        }
        int32_t* numbers = numbers_.data();
        float* values = values_.data();
        for (int64_t i = 0; i < n; ++i) {
            const int64_t number = row(i);
            const float* const x = X.row(number);
            int64_t size = 0;
            for (int64_t j = 0; j < X.columns; ++j) {
                numbers[size] = static_cast<int32_t>(j);
                values[size] = x[j];
                size += x[j] != 0.0f;
            }
            rows_.push_back({numbers, values, size, number});
            numbers += X.columns;
            values += X.columns;
        }
    }

    const BlockRows& block_;
    const int64_t n_features_;
    Localizer& localizer_ = thread_localizer();
    std::vector<Entries> rows_;
    std::vector<int32_t> numbers_, ids_;
    std::vector<float> values_;
};

template <class Table>
Outcome wide_loop(const WideModel& model, const BlockRows& block, const Schedule& schedule,
                  const Table& table, int64_t dim) {
    Outcome outcome;
    Numbering numbering(block, table.rows() - 1);
    Gathered weights(dim), gradient(dim);
    const float* const cells = table.row(0);
    const int64_t stride = table.stride(), intercept = table.rows() - 1;
    const auto prefetch = [=](int32_t feature) {
        const float* const row = cells + feature * stride;
        __builtin_prefetch(row, 1);
        if (stride > 1) __builtin_prefetch(row + std::min<int64_t>(stride - 1, 16), 1);
        if (stride > 17) __builtin_prefetch(row + std::min<int64_t>(stride - 1, 32), 1);
    };
    for (int64_t b = schedule.first_batch; b < schedule.first_batch + schedule.n_batches; ++b) {
        const int64_t step = schedule.current_step(), begin = schedule.begin(b);
        if constexpr (Table::is_lazy) check_step(step, 1);
        numbering.take([&](int64_t i) { return schedule.order[begin + i]; }, schedule.rows(b), prefetch);
        const int64_t n = numbering.n_touched();
        const int32_t* const ids = numbering.ids();
        weights.resize(n);
        gradient.clear(n);
        const auto id = [&](int64_t i) { return i < n ? int64_t{ids[i]} : intercept; };
        const int64_t n_rows = n + model.fit_intercept();
        for (int64_t i = 0; i < n_rows; ++i) {
            table.catch_up(id(i), step);
            weights.set_row(i, table.row(id(i)));
        }
        const Sums sums = model.add_gradient(numbering.rows(), weights, gradient);
        if (!outcome.add(sums, schedule.rows(b))) break;
        gradient.scale(static_cast<float>(1.0 / static_cast<double>(schedule.divisor)));
        if (table.rule().clips()) table.rule().clip(gradient.cells.data(), gradient.cells.size());
        for (int64_t i = 0; i < n_rows; ++i) table.step_row(id(i), gradient.row(i), step);
        schedule.finish_batch();
    }
    return outcome;
}

inline nb::tuple wide_minibatches(const WideModel& model, const BlockRows& block, const Schedule& schedule,
                                  const Buffer& table, int64_t dim, const Rule& rule) {
    const int64_t n_features = matrix<float>(table, "table").rows - 1;
    if (n_features < 0) value_error("table: has no row, n_features + 1 needed");
    block.check_width(n_features);
    return with_table(table, dim, rule, n_features, block.dense(), [&](const auto& full) {
        Outcome outcome;
        {
            nb::gil_scoped_release release;
            outcome = wide_loop(model, block, schedule, full, dim);
        }
        return outcome.to_python();
    });
}

// For rows pulled from a store. Sparse ones are numbered already, row i of them being sample order[i]; of
// dense ones row order[i] is looked up.
inline nb::tuple wide_gradient(const WideModel& model, const BlockRows& block, const Input& order,
                               int64_t n_samples, const Input& pulled, int64_t dim, int64_t batch_size) {
    if (batch_size < 1) value_error("batch_size: is ", batch_size, ", a number >= 1 needed");
    const RowOrder sample(order, n_samples);
    if (!block.dense() && sample.size != block.rows())
        value_error("rows: are ", block.rows(), ", ", sample.size, " (as in order) needed");
    const auto given = matrix<float>(pulled, "pulled");
    if (given.rows < 1 || given.columns != dim)
        value_error("pulled: has shape (", given.rows, ", ", given.columns, "), (features + 1, ", dim,
                    ") needed");
    const int64_t n = given.rows - 1;
    block.check_width(n);
    Owned<float> result(static_cast<size_t>(given.rows * dim));
    Sums sums;
    {
        nb::gil_scoped_release release;
        Gathered weights(dim), gradient(dim);
        weights.clear(n);
        weights.read(given.data);
        gradient.clear(n);
        Numbering numbering(block, n);
        std::vector<Entries> entries;
        std::span<const Entries> rows;
        if (block.dense()) {
            numbering.take([&](int64_t i) { return sample[i]; }, sample.size, [](int32_t) {});
            rows = numbering.rows();
        } else {
            const Csr& csr = block.csr();
            for (int64_t i = 0; i < csr.rows(); ++i) {
                const auto [begin, size] = csr.row(i);
                const int32_t* const numbers = csr.indices.data() + begin;
                for (int64_t k = 0; k < size; ++k)
                    if (numbers[k] < 0 || numbers[k] >= n) [[unlikely]]
                        index_error("local: row ", i, ", position ", k, ": ", numbers[k], " is not in [0, ",
                                    n, ")");
                entries.push_back({numbers, csr.values ? csr.values + begin : nullptr, size, sample[i]});
            }
            rows = entries;
        }
        sums = model.add_gradient(rows, weights, gradient);
        gradient.write(result.data.get(), static_cast<float>(1.0 / static_cast<double>(batch_size)));
    }
    const auto shape = {static_cast<size_t>(given.rows), static_cast<size_t>(dim)};
    return nb::make_tuple(to_numpy(std::move(result.data), shape), sums.loss, sums.weight);
}

// (rows, n_outputs) at the whole table's weights.
inline nb::object wide_outputs(const WideModel& model, const BlockRows& block, const Input& whole,
                               int64_t dim) {
    const auto given = matrix<float>(whole, "weights");
    if (given.rows < 1 || given.columns != dim)
        value_error("weights: have shape (", given.rows, ", ", given.columns, "), (n_features + 1, ", dim,
                    ") needed");
    const int64_t n = given.rows - 1, n_outputs = model.n_outputs();
    block.check_width(n);
    Owned<float> result(static_cast<size_t>(block.rows() * n_outputs));
    {
        nb::gil_scoped_release release;
        constexpr int64_t at_once = 256;
        Gathered weights(dim);
        Numbering numbering(block, n);
        for (int64_t begin = 0; begin < block.rows(); begin += at_once) {
            numbering.take([&](int64_t i) { return begin + i; }, std::min(at_once, block.rows() - begin),
                           [](int32_t) {});
            const int64_t touched = numbering.n_touched();
            if (begin == 0 || !block.dense()) {
                weights.clear(touched);
                for (int64_t i = 0; i < touched; ++i)
                    std::copy_n(given.row(numbering.ids()[i]), dim, weights.row(i));
                std::copy_n(given.row(n), dim, weights.row(touched));
            }
            for (const Entries& row : numbering.rows())
                model.outputs(row, weights, result.data.get() + row.sample * n_outputs);
        }
    }
    return to_numpy(std::move(result.data),
                    {static_cast<size_t>(block.rows()), static_cast<size_t>(n_outputs)});
}

}  // namespace squall
