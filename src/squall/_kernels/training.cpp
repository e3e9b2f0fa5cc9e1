// Minibatch training of linear models: the fused loop on a table in this process's memory, and the same
// gradient for rows pulled from a store.
#include "bindings.hpp"
#include "localizer.hpp"
#include "losses.hpp"
#include "minibatches.hpp"
#include "samples.hpp"
#include "sparse.hpp"
#include "table.hpp"

namespace squall {
namespace {

// Rows' margins to their losses and factors in the gradient, many rows side by side.
template <class Loss>
class Terms {
  public:
    using Sample = typename Samples<Loss>::Sample;

    void clear() {
        margins_.clear();
        labels_.clear();
        weights_.clear();
    }

    void add(double margin, Sample sample) {
        margins_.push_back(margin);
        labels_.push_back(sample.label);
        weights_.push_back(sample.weight);
    }

    // The factors: (number of rows).
    const float* finish(Sums& sums) {
        const size_t n = margins_.size();
        losses_.resize(n);
        slopes_.resize(n);
        double* const losses = losses_.data();
        float* const slopes = slopes_.data();
        const double* const margins = margins_.data();
        const float* const labels = labels_.data();
        for (size_t i = 0; i < n; ++i) {
            const Term term = Loss::at(margins[i], labels[i]);
            losses[i] = term.loss;
            slopes[i] = term.slope;
        }
        for (size_t i = 0; i < n; ++i) {
            sums.add({losses[i], slopes[i]}, weights_[i]);
            slopes[i] = weights_[i] == 0 ? 0.0f : static_cast<float>(weights_[i] * slopes[i]);
        }
        return slopes;
    }

  private:
    std::vector<double> margins_, weights_, losses_;
    std::vector<float> labels_, slopes_;
};

template <bool has_values>
double sparse_margin(const int32_t* local, const float* values, int64_t n, const float* weights) {
    return row_dot<has_values>(values, n, [&](int64_t k) { return weights[local[k]]; });
}

template <bool has_values>
void add_row(const int32_t* local, const float* values, int64_t n, float factor, float* gradient) {
    for (int64_t k = 0; k < n; ++k) gradient[local[k]] += has_values ? factor * values[k] : factor;
}

// A minibatch's sum becomes its mean only at the end: from weights 0 every term is +-1/2, and what cancels
// must cancel exactly, because AdaGrad turns a first gradient of any size into a full step.
//
// It is divided by the nominal batch size, also in a short last minibatch: so each row counts the same, and
// a lone last row, whose gradient is not averaged with any other's, cannot undo an epoch.
void divide(float* gradient, size_t n, Sums& sums, int64_t batch_size) {
    const double inverse = 1.0 / static_cast<double>(batch_size);
    const auto narrow = static_cast<float>(inverse);
    for (size_t i = 0; i < n; ++i) gradient[i] *= narrow;
    sums.intercept_gradient *= inverse;
}

// ----------------------------------------------------------------------------------------- pull and push

nb::tuple localize(const Input& indices) {
    const auto features = vector<int32_t>(indices, "indices");
    Owned<int32_t> local(features.size());
    Localizer& localizer = thread_localizer();
    std::unique_ptr<int64_t[]> unique;
    {
        nb::gil_scoped_release release;
        constexpr int64_t block =
            1024;  // so that the hash table grows with the features, not with the entries
        const auto n = static_cast<int64_t>(features.size());
        for (int64_t begin = 0; begin < n; begin += block) {
            const int64_t count = std::min(block, n - begin);
            const int64_t done = localizer.insert(features.data() + begin, count, int64_t{1} << 31,
                                                  local.data.get() + begin, [](int32_t) {});
            if (done != count)
                index_error("indices: position ", begin + done, ": feature ",
                            features[static_cast<size_t>(begin + done)], " is negative");
        }
        unique = std::make_unique_for_overwrite<int64_t[]>(localizer.size());
        std::copy_n(localizer.keys(), localizer.size(), unique.get());
    }
    return nb::make_tuple(to_numpy(std::move(unique), {localizer.size()}), to_numpy(std::move(local)));
}

// Rows of a block, their features numbered, and which rows of a table they need: features, then the
// intercept.
nb::tuple csr_minibatch(const Input& indptr, const Input& indices, const Input& values, const Input& rows,
                        int64_t n_features) {
    const Csr csr(indptr, indices, values);
    if (n_features < 0 || n_features > int64_t{1} << 31)
        value_error("n_features: is ", n_features, ", a number in [0, 2^31] needed");
    const auto wanted = vector<int32_t>(rows, "rows");
    Owned<int64_t> ends(wanted.size() + 1);
    std::unique_ptr<int32_t[]> local;
    std::unique_ptr<float[]> taken;
    std::unique_ptr<int64_t[]> needed;
    size_t nnz = 0, n_needed = 0;
    {
        nb::gil_scoped_release release;
        const RowOrder order(rows, csr.rows());
        ends[0] = 0;
        for (int64_t i = 0; i < order.size; ++i) {
            const auto [begin, size] = csr.row(order[i]);
            __builtin_prefetch(csr.indices.data() + begin);  // rows come from all over memory
            __builtin_prefetch(csr.indices.data() + begin + std::min<int64_t>(size, 16));
            ends[static_cast<size_t>(i) + 1] = ends[static_cast<size_t>(i)] + size;
        }
        nnz = static_cast<size_t>(ends[wanted.size()]);
        local = std::make_unique_for_overwrite<int32_t[]>(nnz);
        if (csr.values) taken = std::make_unique_for_overwrite<float[]>(nnz);
        Localizer& localizer = thread_localizer();
        for (int64_t i = 0; i < order.size; ++i) {
            const auto [begin, size] = csr.row(order[i]);
            const int64_t to = ends[static_cast<size_t>(i)];
            const int32_t* const features = csr.indices.data() + begin;
            const int64_t done =
                localizer.insert(features, size, n_features, local.get() + to, [](int32_t) {});
            if (done != size) bad_index(order[i], done, features[done], n_features);
            if (csr.values) std::copy_n(csr.values + begin, size, taken.get() + to);
        }
        n_needed = localizer.size() + 1;
        needed = std::make_unique_for_overwrite<int64_t[]>(n_needed);
        std::copy_n(localizer.keys(), localizer.size(), needed.get());
        needed[n_needed - 1] = n_features;
    }
    nb::object taken_values = nb::none();
    if (csr.values) taken_values = to_numpy(std::move(taken), {nnz});
    return nb::make_tuple(to_numpy(std::move(needed), {n_needed}), to_numpy(std::move(ends)),
                          to_numpy(std::move(local), {nnz}), taken_values);
}

template <class Loss>
nb::tuple csr_gradient(const Input& indptr, const Input& local, const Input& values, const Input& labels,
                       const Input& weights, const Input& rows, const Input& pulled, bool fit_intercept,
                       int64_t batch_size) {
    if (batch_size < 1) value_error("batch_size: is ", batch_size, ", a number >= 1 needed");
    const Csr csr(indptr, local, values, "local");
    const Samples<Loss> samples(labels, weights, labels.size());
    const RowOrder sample(rows, static_cast<int64_t>(samples.labels.size()));
    if (sample.size != csr.rows()) value_error("rows: are ", sample.size, ", ", csr.rows(), " needed");
    const auto coef = matrix<float>(pulled, "pulled");
    if (coef.rows < 1 || coef.columns != 1)
        value_error("pulled: has shape (", coef.rows, ", ", coef.columns, "), (features + 1, 1) needed");
    const int64_t limit = coef.rows - 1;
    Owned<float> gradient(static_cast<size_t>(coef.rows));
    Sums sums;
    {
        nb::gil_scoped_release release;
        std::fill_n(gradient.data.get(), gradient.size, 0.0f);
        const double intercept = fit_intercept ? static_cast<double>(coef.data[limit]) : 0.0;
        const auto add = [&](auto has_values) {
            Terms<Loss> terms;
            const auto entries = [&](int64_t begin) {
                return std::pair(csr.indices.data() + begin, has_values ? csr.values + begin : nullptr);
            };
            for (int64_t i = 0; i < csr.rows(); ++i) {
                const auto [begin, size] = csr.row(i);
                const auto [numbers, row_values] = entries(begin);
                for (int64_t k = 0; k < size; ++k)
                    if (numbers[k] < 0 || numbers[k] >= limit) [[unlikely]]
                        index_error("local: row ", i, ", position ", k, ": ", numbers[k], " is not in [0, ",
                                    limit, ")");
                terms.add(intercept + sparse_margin<has_values>(numbers, row_values, size, coef.data),
                          samples.at(sample[i]));
            }
            const float* const factors = terms.finish(sums);
            for (int64_t i = 0; i < csr.rows(); ++i) {
                const auto [begin, size] = csr.row(i);
                const auto [numbers, row_values] = entries(begin);
                add_row<has_values>(numbers, row_values, size, factors[i], gradient.data.get());
            }
        };
        csr.values ? add(std::true_type{}) : add(std::false_type{});
        divide(gradient.data.get(), gradient.size, sums, batch_size);
        gradient[gradient.size - 1] = fit_intercept ? static_cast<float>(sums.intercept_gradient) : 0.0f;
    }
    const size_t n = gradient.size;
    return nb::make_tuple(to_numpy(std::move(gradient.data), {n, 1}), sums.loss, sums.weight);
}

// ------------------------------------------------------------------------------------------ fused loops

// The intercept is the table's last row.
template <class Table>
double pull_intercept(const Table& table, bool fit_intercept, int64_t step) {
    if (!fit_intercept) return 0;
    const int64_t row = table.rows() - 1;
    table.catch_up(row, step);
    return load(*table.row(row));
}

// The last part of a minibatch: of `gradient`, n features' and one place for the intercept's, each feature
// takes its step, and the intercept its own. Clipped as table_update clips the same elements.
template <class Table, class Id>
void apply(const Table& table, Id id, int64_t n, float* gradient, double intercept_gradient,
           bool fit_intercept, int64_t step) {
    gradient[n] = fit_intercept ? static_cast<float>(intercept_gradient) : 0.0f;
    const Rule& rule = table.rule();
    if (rule.clips()) rule.clip(gradient, static_cast<size_t>(n) + 1);
    table.step_rows(id, n, gradient, step);
    if (fit_intercept) table.step_rows([&](int64_t) { return table.rows() - 1; }, 1, gradient + n, step);
}

template <class Loss, bool has_values, class Table>
class SparseLoop {
  public:
    SparseLoop(const Csr& csr, const Samples<Loss>& samples, const Schedule& schedule, const Table& table,
               bool fit_intercept)
        : csr_(csr), samples_(samples), schedule_(schedule), table_(table), fit_intercept_(fit_intercept) {}

    Outcome run() {
        Outcome outcome;
        for (int64_t b = schedule_.first_batch; b < schedule_.first_batch + schedule_.n_batches; ++b) {
            const int64_t step = schedule_.current_step();
            if constexpr (Table::is_lazy) check_step(step, 1);
            find_rows(b);
            number_features(schedule_.begin(b));
            gather_weights(step);
            const Sums sums = sum_gradient(step);
            if (!outcome.add(sums, schedule_.rows(b))) break;
            const int32_t* const features = localizer_.keys();
            apply(
                table_, [&](int64_t i) { return int64_t{features[i]}; },
                static_cast<int64_t>(localizer_.size()), gradient_.data(), sums.intercept_gradient,
                fit_intercept_, step);
            schedule_.finish_batch();
        }
        return outcome;
    }

  private:
    struct Row {
        int64_t row, begin, size;
    };

    void find_rows(int64_t batch) {
        rows_.clear();
        int64_t entries = 0;
        for (int64_t i = 0; i < schedule_.rows(batch); ++i) {
            const int64_t row = schedule_.order[schedule_.begin(batch) + i];
            const auto [begin, size] = csr_.row(row);
            rows_.push_back({row, begin, size});
            entries += size;
        }
        if (local_.size() < static_cast<size_t>(entries)) local_.resize(static_cast<size_t>(entries));
    }

    // Also starts loading the table's rows: done here, between the steps of hashing, memory keeps up; a loop
    // of prefetches one minibatch ahead was measured slower.
    void number_features(int64_t first) {
        localizer_.clear();
        const int64_t n_features = table_.rows() - 1, stride = table_.stride();
        const float* const cells = table_.row(0);
        const auto prefetch_row = [=](int32_t feature) { __builtin_prefetch(cells + feature * stride, 1); };
        constexpr int64_t ahead = 8;  // rows, also into the next minibatch
        int32_t* local = local_.data();
        for (size_t i = 0; i < rows_.size(); ++i) {
            const auto [row, begin, size] = rows_[i];
            prefetch_entries(first + static_cast<int64_t>(i) + ahead);
            const int32_t* const features = csr_.indices.data() + begin;
            const int64_t done = localizer_.insert(features, size, n_features, local, prefetch_row);
            if (done != size) bad_index(row, done, features[done], n_features);
            local += size;
        }
    }

    // Both ends of a row, and what lies between: a row of 39 indices may begin in the middle of a line.
    void prefetch_entries(int64_t position) const {
        constexpr int64_t line = 64 / sizeof(int32_t), most = 8 * line;
        if (position >= schedule_.order.size) return;
        const auto [begin, size] = csr_.row(schedule_.order[position]);
        if (size == 0) return;
        const int64_t last = begin + std::min(size, most) - 1;
        for (int64_t k = begin; k < last; k += line) prefetch_entry(k);
        prefetch_entry(last);
    }

    void prefetch_entry(int64_t k) const {
        __builtin_prefetch(csr_.indices.data() + k);
        if constexpr (has_values) __builtin_prefetch(csr_.values + k);
    }

    void gather_weights(int64_t step) {
        const size_t n = localizer_.size();
        if (weights_.size() < n) weights_.resize(n);
        gradient_.assign(n + 1, 0.0f);
        const int32_t* const features = localizer_.keys();
        table_.pull([&](int64_t i) { return int64_t{features[i]}; }, static_cast<int64_t>(n), step,
                    weights_.data());
    }

    Sums sum_gradient(int64_t step) {
        Sums sums;
        const double intercept = pull_intercept(table_, fit_intercept_, step);
        terms_.clear();
        const int32_t* local = local_.data();
        for (const auto& [row, begin, size] : rows_) {
            const double margin = sparse_margin<has_values>(local, values(begin), size, weights_.data());
            terms_.add(intercept + margin, samples_.at(row));
            local += size;
        }
        const float* const factors = terms_.finish(sums);
        local = local_.data();
        for (size_t i = 0; i < rows_.size(); ++i) {
            const auto& [row, begin, size] = rows_[i];
            add_row<has_values>(local, values(begin), size, factors[i], gradient_.data());
            local += size;
        }
        divide(gradient_.data(), gradient_.size(), sums, schedule_.divisor);
        return sums;
    }

    const float* values(int64_t begin) const { return has_values ? csr_.values + begin : nullptr; }

    const Csr& csr_;
    const Samples<Loss>& samples_;
    const Schedule& schedule_;
    const Table& table_;
    const bool fit_intercept_;
    Localizer& localizer_ = thread_localizer();
    std::vector<Row> rows_;
    std::vector<int32_t> local_;
    std::vector<float> weights_, gradient_;
    Terms<Loss> terms_;
};

template <class Loss>
nb::tuple minibatches(const Input& indptr, const Input& indices, const Input& values, const Input& labels,
                      const Input& weights, const Input& order, int64_t batch_size, int64_t first_batch,
                      int64_t n_batches, const Buffer& table, const Rule& rule, bool fit_intercept,
                      const Buffer& step, const Buffer& progress) {
    const Csr csr(indptr, indices, values);
    const Samples<Loss> samples(labels, weights, static_cast<size_t>(csr.rows()));
    const Schedule schedule(order, csr.rows(), batch_size, first_batch, n_batches, step, progress);
    const int64_t n_features = matrix<float>(table, "table").rows - 1;
    if (n_features < 0) value_error("table: has no row, n_features + 1 needed");
    return with_table(table, 1, rule, n_features, false, [&](const auto& full) {
        using Full = std::remove_cvref_t<decltype(full)>;
        Outcome outcome;
        {
            nb::gil_scoped_release release;
            if (csr.values)
                outcome = SparseLoop<Loss, true, Full>(csr, samples, schedule, full, fit_intercept).run();
            else
                outcome = SparseLoop<Loss, false, Full>(csr, samples, schedule, full, fit_intercept).run();
        }
        return outcome.to_python();
    });
}

// ------------------------------------------------------------------------------------------- dense rows

// In 16 partial sums, which the compiler keeps in vector registers. The order of additions is fixed.
inline double dense_dot(const float* x, const float* w, int64_t n) {
    constexpr int lanes = 16;
    float sum[lanes] = {};
    int64_t j = 0;
    for (; j + lanes <= n; j += lanes)
        for (int k = 0; k < lanes; ++k) sum[k] += x[j + k] * w[j + k];
    double total = 0;
    for (; j < n; ++j) total += static_cast<double>(x[j]) * static_cast<double>(w[j]);
    for (int k = 0; k < lanes; ++k) total += static_cast<double>(sum[k]);
    return total;
}

template <class Loss, class Table>
Outcome dense_loop(Matrix<const float> X, const Samples<Loss>& samples, const Schedule& schedule,
                   const Table& table, bool fit_intercept) {
    Outcome outcome;
    const int64_t d = X.columns;
    std::vector<float> weights(static_cast<size_t>(d)), gradient(static_cast<size_t>(d) + 1);
    Terms<Loss> terms;
    for (int64_t b = schedule.first_batch; b < schedule.first_batch + schedule.n_batches; ++b) {
        const int64_t step = schedule.current_step();
        if constexpr (Table::is_lazy) check_step(step, 1);
        for (int64_t j = 0; j < d; ++j) {
            table.catch_up(j, step);
            weights[static_cast<size_t>(j)] = load(*table.row(j));
        }
        std::fill(gradient.begin(), gradient.end(), 0.0f);
        Sums sums;
        const double intercept = pull_intercept(table, fit_intercept, step);
        const int64_t begin = schedule.begin(b), rows = schedule.rows(b);
        terms.clear();
        for (int64_t i = begin; i < begin + rows; ++i) {
            const int64_t row = schedule.order[i];
            terms.add(intercept + dense_dot(X.row(row), weights.data(), d), samples.at(row));
        }
        const float* const factors = terms.finish(sums);
        for (int64_t i = 0; i < rows; ++i) {
            const float* const x = X.row(schedule.order[begin + i]);
            const float factor = factors[i];
            float* const g = gradient.data();
            for (int64_t j = 0; j < d; ++j) g[j] += factor * x[j];
        }
        if (!outcome.add(sums, rows)) break;
        divide(gradient.data(), gradient.size(), sums, schedule.divisor);
        apply(
            table, [](int64_t j) { return j; }, d, gradient.data(), sums.intercept_gradient, fit_intercept,
            step);
        schedule.finish_batch();
    }
    return outcome;
}

template <class Loss>
nb::tuple minibatches_dense(const Input& X, const Input& labels, const Input& weights, const Input& order,
                            int64_t batch_size, int64_t first_batch, int64_t n_batches, const Buffer& table,
                            const Rule& rule, bool fit_intercept, const Buffer& step,
                            const Buffer& progress) {
    const auto rows = matrix<float>(X, "X");
    const Samples<Loss> samples(labels, weights, static_cast<size_t>(rows.rows));
    const Schedule schedule(order, rows.rows, batch_size, first_batch, n_batches, step, progress);
    const int64_t table_rows = matrix<float>(table, "table").rows;
    if (table_rows != rows.columns + 1)
        value_error("table: has ", table_rows, " rows, ", rows.columns + 1, " (columns of X + 1) needed");
    return with_table(table, 1, rule, rows.columns, true, [&](const auto& full) {
        Outcome outcome;
        {
            nb::gil_scoped_release release;
            outcome = dense_loop<Loss>(rows, samples, schedule, full, fit_intercept);
        }
        return outcome.to_python();
    });
}

template <class Loss>
void bind_linear(nb::module_& m, const char* gradient, const char* sparse, const char* dense) {
    m.def(gradient, &csr_gradient<Loss>, nb::arg("indptr").noconvert(), nb::arg("local").noconvert(),
          nb::arg("values").noconvert().none(), nb::arg("labels").noconvert(),
          nb::arg("weights").noconvert().none(), nb::arg("rows").noconvert().none(),
          nb::arg("pulled").noconvert(), nb::arg("fit_intercept"), nb::arg("batch_size"));
    m.def(sparse, &minibatches<Loss>, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("values").noconvert().none(), nb::arg("labels").noconvert(),
          nb::arg("weights").noconvert().none(), nb::arg("order").noconvert().none(), nb::arg("batch_size"),
          nb::arg("first_batch"), nb::arg("n_batches"), nb::arg("table").noconvert(), nb::arg("rule"),
          nb::arg("fit_intercept"), nb::arg("step").noconvert(), nb::arg("progress").noconvert().none());
    m.def(dense, &minibatches_dense<Loss>, nb::arg("X").noconvert(), nb::arg("labels").noconvert(),
          nb::arg("weights").noconvert().none(), nb::arg("order").noconvert().none(), nb::arg("batch_size"),
          nb::arg("first_batch"), nb::arg("n_batches"), nb::arg("table").noconvert(), nb::arg("rule"),
          nb::arg("fit_intercept"), nb::arg("step").noconvert(), nb::arg("progress").noconvert().none());
}

}  // namespace

void bind_training(nb::module_& m) {
    m.def("localize", &localize, nb::arg("indices").noconvert());
    m.def("csr_minibatch", &csr_minibatch, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("values").noconvert().none(), nb::arg("rows").noconvert(), nb::arg("n_features"));
    bind_linear<Logistic>(m, "csr_logistic_gradient", "logistic_minibatches", "logistic_minibatches_dense");
    bind_linear<Squared>(m, "csr_squared_gradient", "squared_minibatches", "squared_minibatches_dense");
}

}  // namespace squall
