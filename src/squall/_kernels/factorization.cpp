// Second-order factorisation machines (Rendle 2010): a table row holds a feature's weight, then its factors.
#include "bindings.hpp"
#include "wide.hpp"

namespace squall {
namespace {

enum LossKind : int { loss_logistic = 0, loss_squared = 1 };

template <class Use>
auto with_loss(int kind, Use use) {
    if (kind == loss_logistic) return use(Logistic());
    if (kind != loss_squared) value_error("loss: ", kind, " is unknown, LOGISTIC = 0 or SQUARED = 1 needed");
    return use(Squared());
}

// score = b + sum_j s_j with s_0 = sum_k x_k w_k, and for each factor f: ((sum_k x_k v_kf)^2 - sum_k (x_k
// v_kf)^2) / 2.
template <class Loss>
class FactorizationModel final : public WideModel {
  public:
    FactorizationModel(int64_t dim, const Samples<Loss>* samples, bool fit_intercept)
        : WideModel(fit_intercept), dim_(dim), samples_(samples) {}

    Sums add_gradient(std::span<const Entries> rows, const Gathered& weights,
                      Gathered& gradient) const override {
        return with_width(weights.width, [&](auto width) {
            Sums sums;
            std::vector<float> s(static_cast<size_t>(weights.width)), q(s.size());
            for (const Entries& row : rows)
                add_row<width()>(row, weights, gradient, s.data(), q.data(), sums);
            return sums;
        });
    }

    int64_t n_outputs() const override { return 1; }
    void outputs(const Entries& row, const Gathered& weights, float* out) const override {
        *out = with_width(weights.width, [&](auto width) {
            std::vector<float> s(static_cast<size_t>(weights.width)), q(s.size());
            return static_cast<float>(score<width()>(row, weights, s.data(), q.data()));
        });
    }

  private:
    template <int64_t fixed>
    double score(const Entries& row, const Gathered& weights, float* s, float* q) const {
        const int64_t width = fixed ? fixed : weights.width;
        constexpr int64_t room = fixed ? fixed : 1;
        float sums[room] = {}, squares[room] = {};  // in registers, if there are few enough
        float* const sum = fixed ? sums : s;
        float* const square = fixed ? squares : q;
        std::fill_n(sum, width, 0.0f);
        std::fill_n(square, width, 0.0f);
        for (int64_t k = 0; k < row.size; ++k) {
            const float x = row.values ? row.values[k] : 1.0f;
            const float* const v = weights.row(row.numbers[k]);
            for (int64_t j = 0; j < width; ++j) {
                const float part = x * v[j];
                sum[j] += part;
                square[j] += part * part;
            }
        }
        if (fixed) std::copy_n(sums, width, s);
        double pairs = 0;
        for (int64_t j = 1; j < dim_; ++j)
            pairs += static_cast<double>(sum[j]) * sum[j] - static_cast<double>(square[j]);
        const double intercept = fit_intercept() ? static_cast<double>(*weights.row(weights.n)) : 0.0;
        return intercept + static_cast<double>(sum[0]) + 0.5 * pairs;
    }

    template <int64_t fixed>
    void add_row(const Entries& row, const Gathered& weights, Gathered& gradient, float* s, float* q,
                 Sums& sums) const {
        const int64_t width = fixed ? fixed : weights.width;
        const auto [label, weight] = samples_->at(row.sample);
        const Term term = Loss::at(score<fixed>(row, weights, s, q), label);
        sums.add(term, weight);
        if (weight == 0) return;
        const auto slope = static_cast<float>(weight * term.slope);
        // d score / d v_kf = x_k (s_f - x_k v_kf); in place 0, d score / d w_k = x_k, without the latter
        // term.
        s[0] = 1;
        for (int64_t k = 0; k < row.size; ++k) {
            const float x = row.values ? row.values[k] : 1.0f, factor = slope * x;
            const float* const v = weights.row(row.numbers[k]);
            float* const g = gradient.row(row.numbers[k]);
            const float first = g[0] + factor;
            for (int64_t j = 0; j < width; ++j) g[j] += factor * (s[j] - x * v[j]);
            g[0] = first;
        }
        if (fit_intercept()) *gradient.row(gradient.n) += slope;
    }

    const int64_t dim_;
    const Samples<Loss>* samples_;
};

nb::tuple fm_minibatches(int loss, const nb::tuple& rows, const Input& labels, const Input& weights,
                         const Input& order, int64_t batch_size, int64_t first_batch, int64_t n_batches,
                         const Buffer& table, int64_t dim, const Rule& rule, bool fit_intercept,
                         const Buffer& step, const Buffer& progress) {
    return with_loss(loss, [&](auto chosen) {
        using Loss = decltype(chosen);
        const BlockRows block(rows);
        const Samples<Loss> samples(labels, weights, static_cast<size_t>(block.rows()));
        const Schedule schedule(order, block.rows(), batch_size, first_batch, n_batches, step, progress);
        const FactorizationModel<Loss> model(dim, &samples, fit_intercept);
        return wide_minibatches(model, block, schedule, table, dim, rule);
    });
}

nb::tuple fm_gradient(int loss, const nb::tuple& rows, const Input& labels, const Input& weights,
                      const Input& order, const Input& pulled, bool fit_intercept, int64_t batch_size) {
    return with_loss(loss, [&](auto chosen) {
        using Loss = decltype(chosen);
        const int64_t dim = matrix<float>(pulled, "pulled").columns;
        const BlockRows block(rows, "local");
        const Samples<Loss> samples(labels, weights, labels.size());
        const FactorizationModel<Loss> model(dim, &samples, fit_intercept);
        const auto n = static_cast<int64_t>(samples.labels.size());
        return wide_gradient(model, block, order, n, pulled, dim, batch_size);
    });
}

nb::object fm_outputs(const nb::tuple& rows, const Input& weights, bool fit_intercept) {
    const int64_t dim = matrix<float>(weights, "weights").columns;
    return wide_outputs(FactorizationModel<Squared>(dim, nullptr, fit_intercept), BlockRows(rows), weights,
                        dim);
}

}  // namespace

void bind_factorization(nb::module_& m) {
    m.attr("LOGISTIC") = static_cast<int>(loss_logistic);
    m.attr("SQUARED") = static_cast<int>(loss_squared);
    m.def("fm_minibatches", &fm_minibatches, nb::arg("loss"), nb::arg("rows"), nb::arg("labels").noconvert(),
          nb::arg("weights").noconvert().none(), nb::arg("order").noconvert().none(), nb::arg("batch_size"),
          nb::arg("first_batch"), nb::arg("n_batches"), nb::arg("table").noconvert(), nb::arg("dim"),
          nb::arg("rule"), nb::arg("fit_intercept"), nb::arg("step").noconvert(),
          nb::arg("progress").noconvert().none());
    m.def("fm_gradient", &fm_gradient, nb::arg("loss"), nb::arg("rows"), nb::arg("labels").noconvert(),
          nb::arg("weights").noconvert().none(), nb::arg("order").noconvert().none(),
          nb::arg("pulled").noconvert(), nb::arg("fit_intercept"), nb::arg("batch_size"));
    m.def("fm_outputs", &fm_outputs, nb::arg("rows"), nb::arg("weights").noconvert(),
          nb::arg("fit_intercept"));
}

}  // namespace squall
