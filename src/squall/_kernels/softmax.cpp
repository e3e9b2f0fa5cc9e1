// Multinomial logistic regression: a table row holds one weight for each class.
#include "bindings.hpp"
#include "wide.hpp"

namespace squall {
namespace {

// exp(z - max z), and their sum; NaN if a number is not finite.
struct Exponentials {
    float highest;
    double sum;

    Exponentials(const float* z, int64_t n, float* e) : highest(z[0]), sum(0) {
        float spoiled = 0;
        for (int64_t j = 0; j < n; ++j) {
            highest = std::max(highest, z[j]);
            spoiled += z[j] * 0.0f;  // 0, or NaN
        }
        for (int64_t j = 0; j < n; ++j) e[j] = exp_minus(highest - z[j]);
        for (int64_t j = 0; j < n; ++j) sum += static_cast<double>(e[j]);
        if (spoiled != 0) sum = nan;
    }

    double loss(float z) const { return std::log(sum) + (static_cast<double>(highest) - z); }
};

class SoftmaxModel final : public WideModel {
  public:
    SoftmaxModel(int64_t n_classes, const Samples<Classes>* samples, bool fit_intercept)
        : WideModel(fit_intercept), n_classes_(n_classes), samples_(samples) {}

    Sums add_gradient(std::span<const Entries> rows, const Gathered& weights,
                      Gathered& gradient) const override {
        return with_width(weights.width, [&](auto width) {
            Sums sums;
            std::vector<float> z(static_cast<size_t>(weights.width));
            for (const Entries& row : rows) add_row<width()>(row, weights, gradient, z.data(), sums);
            return sums;
        });
    }

    int64_t n_outputs() const override { return n_classes_; }
    void outputs(const Entries& row, const Gathered& weights, float* out) const override {
        with_width(weights.width, [&](auto width) {
            std::vector<float> z(static_cast<size_t>(weights.width));
            logits<width()>(row, weights, z.data());
            std::copy_n(z.data(), n_classes_, out);
        });
    }

  private:
    template <int64_t fixed>
    void logits(const Entries& row, const Gathered& weights, float* out) const {
        const int64_t width = fixed ? fixed : weights.width;
        constexpr int64_t room = fixed ? fixed : 1;
        float held[room] = {};  // in registers, if there are few enough
        float* const z = fixed ? held : out;
        std::fill_n(z, width, 0.0f);
        if (fit_intercept()) std::copy_n(weights.row(weights.n), width, z);
        for (int64_t k = 0; k < row.size; ++k) {
            const float x = row.values ? row.values[k] : 1.0f;
            const float* const w = weights.row(row.numbers[k]);
            for (int64_t j = 0; j < width; ++j) z[j] += x * w[j];
        }
        if (fixed) std::copy_n(held, width, out);
    }

    template <int64_t fixed>
    void add_row(const Entries& row, const Gathered& weights, Gathered& gradient, float* z,
                 Sums& sums) const {
        const int64_t width = fixed ? fixed : weights.width;
        const auto [label, weight] = samples_->at(row.sample);
        sums.weight += weight;
        if (weight == 0) return;  // whatever its loss, it has no part
        logits<fixed>(row, weights, z);
        const auto own = static_cast<int64_t>(label);
        const float own_logit = z[own];
        const Exponentials exponentials(z, n_classes_, z);
        sums.loss += weight * exponentials.loss(own_logit);
        const auto factor = static_cast<float>(weight / exponentials.sum);
        for (int64_t j = 0; j < n_classes_; ++j) z[j] *= factor;
        std::fill(z + n_classes_, z + width, 0.0f);
        z[own] -= static_cast<float>(weight);
        for (int64_t k = 0; k < row.size; ++k) {
            const float x = row.values ? row.values[k] : 1.0f;
            float* const g = gradient.row(row.numbers[k]);
            for (int64_t j = 0; j < width; ++j) g[j] += x * z[j];
        }
        if (!fit_intercept()) return;
        float* const g = gradient.row(gradient.n);
        for (int64_t j = 0; j < width; ++j) g[j] += z[j];
    }

    const int64_t n_classes_;
    const Samples<Classes>* samples_;
};

nb::tuple softmax_minibatches(const nb::tuple& rows, const Input& labels, const Input& weights,
                              const Input& order, int64_t batch_size, int64_t first_batch, int64_t n_batches,
                              const Buffer& table, int64_t n_classes, const Rule& rule, bool fit_intercept,
                              const Buffer& step, const Buffer& progress) {
    const BlockRows block(rows);
    const Samples<Classes> samples(labels, weights, static_cast<size_t>(block.rows()),
                                   {checked_classes(n_classes)});
    const Schedule schedule(order, block.rows(), batch_size, first_batch, n_batches, step, progress);
    const SoftmaxModel model(n_classes, &samples, fit_intercept);
    return wide_minibatches(model, block, schedule, table, n_classes, rule);
}

nb::tuple softmax_gradient(const nb::tuple& rows, const Input& labels, const Input& weights,
                           const Input& order, const Input& pulled, bool fit_intercept, int64_t batch_size) {
    const int64_t n_classes = checked_classes(matrix<float>(pulled, "pulled").columns);
    const BlockRows block(rows, "local");
    const Samples<Classes> samples(labels, weights, labels.size(), {n_classes});
    const SoftmaxModel model(n_classes, &samples, fit_intercept);
    const auto n = static_cast<int64_t>(samples.labels.size());
    return wide_gradient(model, block, order, n, pulled, n_classes, batch_size);
}

nb::object softmax_outputs(const nb::tuple& rows, const Input& weights, bool fit_intercept) {
    const int64_t n_classes = checked_classes(matrix<float>(weights, "weights").columns);
    return wide_outputs(SoftmaxModel(n_classes, nullptr, fit_intercept), BlockRows(rows), weights, n_classes);
}

nb::tuple softmax_loss(const Input& outputs, const Input& labels, const Input& weights) {
    const auto z = matrix<float>(outputs, "outputs");
    const Samples<Classes> samples(labels, weights, static_cast<size_t>(z.rows),
                                   {checked_classes(z.columns)});
    double loss = 0, total = 0, right = 0;
    {
        nb::gil_scoped_release release;
        std::vector<float> scratch(static_cast<size_t>(z.columns));
        for (int64_t i = 0; i < z.rows; ++i) {
            const auto [label, weight] = samples.at(i);
            total += weight;
            if (weight == 0) continue;
            const float* const row = z.row(i);
            const auto own = static_cast<int64_t>(label);
            loss += weight * Exponentials(row, z.columns, scratch.data()).loss(row[own]);
            if (std::max_element(row, row + z.columns) - row == own) right += weight;
        }
    }
    return nb::make_tuple(loss, total, right);
}

}  // namespace

void bind_softmax(nb::module_& m) {
    m.def("softmax_minibatches", &softmax_minibatches, nb::arg("rows"), nb::arg("labels").noconvert(),
          nb::arg("weights").noconvert().none(), nb::arg("order").noconvert().none(), nb::arg("batch_size"),
          nb::arg("first_batch"), nb::arg("n_batches"), nb::arg("table").noconvert(), nb::arg("n_classes"),
          nb::arg("rule"), nb::arg("fit_intercept"), nb::arg("step").noconvert(),
          nb::arg("progress").noconvert().none());
    m.def("softmax_gradient", &softmax_gradient, nb::arg("rows"), nb::arg("labels").noconvert(),
          nb::arg("weights").noconvert().none(), nb::arg("order").noconvert().none(),
          nb::arg("pulled").noconvert(), nb::arg("fit_intercept"), nb::arg("batch_size"));
    m.def("softmax_outputs", &softmax_outputs, nb::arg("rows"), nb::arg("weights").noconvert(),
          nb::arg("fit_intercept"));
    m.def("softmax_loss", &softmax_loss, nb::arg("outputs").noconvert(), nb::arg("labels").noconvert(),
          nb::arg("weights").noconvert().none());
}

}  // namespace squall
