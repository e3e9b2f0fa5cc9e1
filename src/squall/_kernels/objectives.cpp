// What second-order methods ask of all rows, in double: loss and gradient, products with the Hessian, its
// diagonal and itself; and the quadratic problem with an absolute-value penalty that they lead to.
#include "bindings.hpp"
#include "wide.hpp"

namespace squall {
namespace {

enum LossKind : int { loss_logistic = 0, loss_squared = 1, loss_softmax = 2 };

// A loss of `outputs` numbers a row (0: known at run time only) is a struct with
//   Labels labels;                                                    for `Samples`
//   double terms(z, label, slope, curvature) const;                   loss and its first two derivatives
//   void multiply(curvature, z) const;                                z := (second derivative) z
//   double element(curvature, a, b) const;                            of the second derivative
// `curvature` is as many numbers as there are outputs.
struct LogisticTerms {
    static constexpr int64_t outputs = 1;
    using Labels = Logistic;
    Labels labels;

    double terms(const double* z, float label, double* slope, double* curvature) const {
        const double s = label != 0.0f ? -*z : *z;
        const double e = std::exp(-std::fabs(s));  // never overflows
        const double probability = (s >= 0 ? 1.0 : e) / (1.0 + e);
        *slope = label != 0.0f ? -probability : probability;
        *curvature = e / ((1.0 + e) * (1.0 + e));
        return std::log1p(e) + (s <= 0 ? 0.0 : s);  // a NaN stays visible
    }
    static void multiply(const double* curvature, double* z) { *z *= *curvature; }
    static double element(const double* curvature, int64_t, int64_t) { return *curvature; }
};

struct SquaredTerms {
    static constexpr int64_t outputs = 1;
    using Labels = Squared;
    Labels labels;

    static double terms(const double* z, float label, double* slope, double* curvature) {
        *slope = *z - static_cast<double>(label);
        *curvature = 1.0;
        return 0.5 * *slope * *slope;
    }
    static void multiply(const double*, double*) {}
    static double element(const double*, int64_t, int64_t) { return 1.0; }
};

struct SoftmaxTerms {
    static constexpr int64_t outputs = 0;
    using Labels = Classes;
    Labels labels;

    double terms(const double* z, float label, double* slope, double* curvature) const {
        const int64_t n = labels.n, own = static_cast<int64_t>(label);
        const double highest = *std::max_element(z, z + n);
        double sum = 0;
        for (int64_t j = 0; j < n; ++j) sum += curvature[j] = std::exp(z[j] - highest);
        for (int64_t j = 0; j < n; ++j) slope[j] = curvature[j] /= sum;
        slope[own] -= 1.0;
        return std::log(sum) + (highest - z[own]);
    }
    void multiply(const double* curvature, double* z) const {
        double mean = 0;
        for (int64_t j = 0; j < labels.n; ++j) mean += curvature[j] * z[j];
        for (int64_t j = 0; j < labels.n; ++j) z[j] = curvature[j] * (z[j] - mean);
    }
    static double element(const double* curvature, int64_t a, int64_t b) {
        return curvature[a] * ((a == b ? 1.0 : 0.0) - curvature[b]);
    }
};

template <class Use>
auto with_loss(int kind, int64_t n_outputs, Use use) {
    if (kind == loss_softmax) return use(SoftmaxTerms{{checked_classes(n_outputs)}});
    if (n_outputs != 1) value_error("outputs: are ", n_outputs, ", 1 needed");
    if (kind == loss_logistic) return use(LogisticTerms());
    if (kind != loss_squared)
        value_error("loss: ", kind, " is unknown, LOGISTIC = 0, SQUARED = 1 or SOFTMAX = 2 needed");
    return use(SquaredTerms());
}

// One row of data; `has_values` and `sparse` say which pointers are there.
template <bool sparse_, bool has_values_>
struct RowView {
    static constexpr bool sparse = sparse_, has_values = has_values_;
    const int32_t* indices;
    const float* values;
    int64_t size;

    int64_t index(int64_t k) const { return sparse ? indices[k] : k; }
    double value(int64_t k) const { return has_values ? static_cast<double>(values[k]) : 1.0; }
};

// Calls `use(i, row)` for each row, whose indices have been checked.
template <bool sparse, bool has_values, class Use>
void for_rows(const BlockRows& block, int64_t n_features, Use use) {
    for (int64_t i = 0; i < block.rows(); ++i) {
        if constexpr (sparse) {
            const Csr& csr = block.csr();
            const auto [begin, size] = csr.row(i);
            const int32_t* const indices = csr.indices.data() + begin;
            uint32_t largest = 0;  // a negative index reads as a huge one
            for (int64_t k = 0; k < size; ++k) largest = std::max(largest, static_cast<uint32_t>(indices[k]));
            if (size > 0 && largest >= static_cast<uint64_t>(n_features)) [[unlikely]]
                for (int64_t k = 0; k < size; ++k)
                    if (indices[k] < 0 || indices[k] >= n_features) bad_index(i, k, indices[k], n_features);
            use(i, RowView<true, has_values>{indices, has_values ? csr.values + begin : nullptr, size});
        } else {
            use(i, RowView<false, true>{nullptr, block.matrix_rows().row(i), n_features});
        }
    }
}

template <class Use>
void for_each_row(const BlockRows& block, int64_t n_features, Use use) {
    block.check_width(n_features);
    if (block.dense()) return for_rows<false, true>(block, n_features, use);
    if (block.csr().values) return for_rows<true, true>(block, n_features, use);
    for_rows<true, false>(block, n_features, use);
}

// Coefficients: a row of `columns` for each feature and, last, the intercepts'.
template <int64_t fixed, class Row>
void outputs_of(const Row& row, Matrix<const double> x, bool intercept, double* z) {
    const int64_t n = fixed ? fixed : x.columns, last = x.rows - 1;
    if constexpr (fixed == 1) {
        *z = row_dot<Row::has_values>(row.values, row.size, [&](int64_t k) { return x.data[row.index(k)]; });
        if (intercept) *z += x.data[last];
        return;
    }
    for (int64_t j = 0; j < n; ++j) z[j] = intercept ? x.row(last)[j] : 0.0;
    for (int64_t k = 0; k < row.size; ++k) {
        const double value = row.value(k);
        const double* const w = x.row(row.index(k));
        for (int64_t j = 0; j < n; ++j) z[j] += value * w[j];
    }
}

template <int64_t fixed, class Row>
void scatter(const Row& row, const double* slopes, bool intercept, Matrix<double> out) {
    const int64_t n = fixed ? fixed : out.columns, last = out.rows - 1;
    for (int64_t k = 0; k < row.size; ++k) {
        const double value = row.value(k);
        double* const to = out.row(row.index(k));
        for (int64_t j = 0; j < n; ++j) to[j] += value * slopes[j];
    }
    if (!intercept) return;
    for (int64_t j = 0; j < n; ++j) out.row(last)[j] += slopes[j];
}

template <class T>
void check_shape(Matrix<T> given, int64_t rows, int64_t columns, const char* name) {
    if (given.rows != rows || given.columns != columns)
        value_error(name, ": has shape (", given.rows, ", ", given.columns, "), (", rows, ", ", columns,
                    ") needed");
}

Matrix<const double> coefficients(const Input& array, const char* name) {
    const auto given = matrix<double>(array, name);
    if (given.rows < 1) value_error(name, ": has no row, n_features + 1 needed");
    return given;
}

double objective_gradient(int kind, const nb::tuple& rows, const Input& labels, const Input& weights,
                          const Input& x_, bool intercept, const Buffer& gradient_,
                          const Buffer& curvature_) {
    const auto x = coefficients(x_, "x");
    const auto gradient = matrix<double>(gradient_, "gradient");
    const auto curvature = matrix<double>(curvature_, "curvature");
    const BlockRows block(rows);
    check_shape(gradient, x.rows, x.columns, "gradient");
    check_shape(curvature, block.rows(), x.columns, "curvature");
    return with_loss(kind, x.columns, [&](auto loss) {
        using Loss = decltype(loss);
        const Samples<typename Loss::Labels> samples(labels, weights, static_cast<size_t>(block.rows()),
                                                     loss.labels);
        nb::gil_scoped_release release;
        std::vector<double> z(static_cast<size_t>(x.columns)), slope(z.size());
        double sum = 0;
        for_each_row(block, x.rows - 1, [&](int64_t i, const auto& row) {
            const auto [label, weight] = samples.at(i);
            outputs_of<Loss::outputs>(row, x, intercept, z.data());
            const double own = loss.terms(z.data(), label, slope.data(), curvature.row(i));
            if (weight == 0) return;  // whatever its loss, it has no part
            sum += weight * own;
            for (double& s : slope) s *= weight;
            scatter<Loss::outputs>(row, slope.data(), intercept, gradient);
        });
        return sum;
    });
}

// What the three about second derivatives have in common: `use(loss, i, row, weight, curvature)` per row.
template <class Use>
void with_curvature(int kind, const nb::tuple& rows, const Input& weights_, const Input& curvature_,
                    int64_t n_features, int64_t n_outputs, Use use) {
    const BlockRows block(rows);
    const auto curvature = matrix<double>(curvature_, "curvature");
    check_shape(curvature, block.rows(), n_outputs, "curvature");
    const float* const weights =
        optional_vector<float>(weights_, "weights", static_cast<size_t>(block.rows()));
    with_loss(kind, n_outputs, [&](auto loss) {
        nb::gil_scoped_release release;
        for_each_row(block, n_features, [&](int64_t i, const auto& row) {
            const double weight = weights ? static_cast<double>(weights[i]) : 1.0;
            if (weight != 0) use(loss, row, weight, curvature.row(i));
        });
    });
}

void hessian_product(int kind, const nb::tuple& rows, const Input& weights, const Input& curvature,
                     const Input& v_, bool intercept, const Buffer& out_) {
    const auto v = coefficients(v_, "v");
    const auto out = matrix<double>(out_, "out");
    check_shape(out, v.rows, v.columns, "out");
    std::vector<double> z(static_cast<size_t>(v.columns));
    with_curvature(kind, rows, weights, curvature, v.rows - 1, v.columns,
                   [&](const auto& loss, const auto& row, double weight, const double* own) {
                       constexpr int64_t n = std::decay_t<decltype(loss)>::outputs;
                       outputs_of<n>(row, v, intercept, z.data());
                       loss.multiply(own, z.data());
                       for (double& s : z) s *= weight;
                       scatter<n>(row, z.data(), intercept, out);
                   });
}

void hessian_diagonal(int kind, const nb::tuple& rows, const Input& weights, const Input& curvature,
                      bool intercept, const Buffer& out_) {
    const auto out = matrix<double>(out_, "out");
    if (out.rows < 1) value_error("out: has no row, n_features + 1 needed");
    std::vector<double> c(static_cast<size_t>(out.columns));
    with_curvature(kind, rows, weights, curvature, out.rows - 1, out.columns,
                   [&](const auto& loss, const auto& row, double weight, const double* own) {
                       for (int64_t j = 0; j < out.columns; ++j)
                           c[static_cast<size_t>(j)] = weight * loss.element(own, j, j);
                       for (int64_t k = 0; k < row.size; ++k) {
                           const double square = row.value(k) * row.value(k);
                           double* const to = out.row(row.index(k));
                           for (int64_t j = 0; j < out.columns; ++j)
                               to[j] += square * c[static_cast<size_t>(j)];
                       }
                       if (!intercept) return;
                       for (int64_t j = 0; j < out.columns; ++j)
                           out.row(out.rows - 1)[j] += c[static_cast<size_t>(j)];
                   });
}

// The block of two features' coefficients, where the first comes before the second or is the same.
template <class Loss>
void add_block(const Loss& loss, const double* curvature, double factor, int64_t i, int64_t j, int64_t n,
               Matrix<double> out) {
    if (i > j) std::swap(i, j);
    for (int64_t a = 0; a < n; ++a)
        for (int64_t b = 0; b < n; ++b)
            out.row(i * n + a)[j * n + b] += factor * loss.element(curvature, a, b);
}

void hessian_matrix(int kind, const nb::tuple& rows, const Input& weights, const Input& curvature,
                    int64_t n_outputs, bool intercept, const Buffer& out_) {
    const auto out = matrix<double>(out_, "out");
    if (n_outputs < 1 || out.rows < n_outputs || out.rows % n_outputs != 0)
        value_error("out: has ", out.rows, " rows, (n_features + 1) * ", n_outputs, " needed");
    check_shape(out, out.rows, out.rows, "out");
    const int64_t n_features = out.rows / n_outputs - 1;
    with_curvature(kind, rows, weights, curvature, n_features, n_outputs,
                   [&](const auto& loss, const auto& row, double weight, const double* own) {
                       constexpr int64_t fixed = std::decay_t<decltype(loss)>::outputs;
                       const int64_t n = fixed ? fixed : n_outputs;
                       for (int64_t k = 0; k < row.size; ++k) {
                           const double factor = weight * row.value(k);
                           const int64_t i = row.index(k);
                           add_block(loss, own, factor * row.value(k), i, i, n, out);
                           for (int64_t l = k + 1; l < row.size; ++l) {
                               const int64_t j =
                                   row.index(l);  // the same feature twice meets itself both ways
                               add_block(loss, own, factor * row.value(l) * (i == j ? 2 : 1), i, j, n, out);
                           }
                           if (intercept) add_block(loss, own, factor, i, n_features, n, out);
                       }
                       if (intercept) add_block(loss, own, weight, n_features, n_features, n, out);
                   });
}

// Coordinate descent on z'Qz/2 - b'z + l1 |z| + l2/2 z'z, both penalties on the first `n_regularized` only.
struct QuadraticDescent {
    Matrix<const double> q;
    std::span<double> z, gradient;  // gradient: Qz - b, kept up to date
    int64_t n_regularized;
    double l1, l2;

    // Minimises over one coordinate; by how much its optimality condition had been violated.
    double visit(int64_t j) const {
        const bool regularized = j < n_regularized;
        const double own = q.row(j)[j], old = z[static_cast<size_t>(j)];
        const double a = own + (regularized ? l2 : 0.0);
        if (!(a > 0)) return 0;
        double u = own * old - gradient[static_cast<size_t>(j)];
        if (regularized) u = std::copysign(std::max(std::fabs(u) - l1, 0.0), u);
        const double step = u / a - old;
        if (step == 0) return 0;
        z[static_cast<size_t>(j)] = old + step;
        const double* const row = q.row(j);
        for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += step * row[i];
        return std::fabs(step) * a;
    }

    bool active(int64_t j) const { return j >= n_regularized || z[static_cast<size_t>(j)] != 0; }

    double sweep(bool all) const {
        double worst = 0;
        for (int64_t j = 0; j < q.rows; ++j)
            if (all || active(j)) worst = std::max(worst, visit(j));
        return worst;
    }
};

double quadratic_descent(const Input& q_, const Input& b_, const Buffer& z_, int64_t n_regularized, double l1,
                         double l2, double tol, int64_t max_sweeps) {
    const auto q = matrix<double>(q_, "q");
    check_shape(q, q.rows, q.rows, "q");
    const auto b = vector<double>(b_, "b", static_cast<size_t>(q.rows));
    const auto z = vector<double>(z_, "z", b.size());
    if (n_regularized < 0 || n_regularized > q.rows)
        value_error("n_regularized: is ", n_regularized, ", a number in [0, ", q.rows, "] needed");
    check_setting(l1, "l1");
    check_setting(l2, "l2");
    check_setting(tol, "tol");
    nb::gil_scoped_release release;
    std::vector<double> gradient(b.size());
    for (int64_t i = 0; i < q.rows; ++i) {
        double sum = -b[static_cast<size_t>(i)];
        for (int64_t j = 0; j < q.rows; ++j) sum += q.row(i)[j] * z[static_cast<size_t>(j)];
        gradient[static_cast<size_t>(i)] = sum;
    }
    const QuadraticDescent descent{q, z, gradient, n_regularized, l1, l2};
    double worst = 0;
    bool all = true;
    for (int64_t done = 0; done < max_sweeps; ++done) {
        worst = descent.sweep(all);
        if (worst > tol)
            all = false;  // those that are not 0 first, until they agree
        else if (all)
            break;
        else
            all = true;
    }
    return worst;
}

}  // namespace

void bind_objectives(nb::module_& m) {
    m.attr("SOFTMAX") = static_cast<int>(loss_softmax);
    m.def("objective_gradient", &objective_gradient, nb::arg("loss"), nb::arg("rows"),
          nb::arg("labels").noconvert(), nb::arg("weights").noconvert().none(), nb::arg("x").noconvert(),
          nb::arg("fit_intercept"), nb::arg("gradient").noconvert(), nb::arg("curvature").noconvert());
    m.def("hessian_product", &hessian_product, nb::arg("loss"), nb::arg("rows"),
          nb::arg("weights").noconvert().none(), nb::arg("curvature").noconvert(), nb::arg("v").noconvert(),
          nb::arg("fit_intercept"), nb::arg("out").noconvert());
    m.def("hessian_diagonal", &hessian_diagonal, nb::arg("loss"), nb::arg("rows"),
          nb::arg("weights").noconvert().none(), nb::arg("curvature").noconvert(), nb::arg("fit_intercept"),
          nb::arg("out").noconvert());
    m.def("hessian_matrix", &hessian_matrix, nb::arg("loss"), nb::arg("rows"),
          nb::arg("weights").noconvert().none(), nb::arg("curvature").noconvert(), nb::arg("n_outputs"),
          nb::arg("fit_intercept"), nb::arg("out").noconvert());
    m.def("quadratic_descent", &quadratic_descent, nb::arg("q").noconvert(), nb::arg("b").noconvert(),
          nb::arg("z").noconvert(), nb::arg("n_regularized"), nb::arg("l1"), nb::arg("l2"), nb::arg("tol"),
          nb::arg("max_sweeps"));
}

}  // namespace squall
