// Matrix factorisation with biases, by stochastic gradient descent rating by rating (Funk 2006; Koren, Bell &
// Volinsky 2009, eq. 5-8). A table row is a user's or an item's bias, then its factors; the last row's first
// number is how much of the training is done, from 0 to 1: what the learning rate follows.
#include <cmath>
#include <numbers>

#include "bindings.hpp"
#include "minibatches.hpp"
#include "samples.hpp"
#include "table.hpp"

namespace squall {
namespace {

// Steps of one rating: rate and penalty, with the rate that belongs to the share of training done.
struct Descent {
    double learning_rate, l2;
    bool cosine;
    double share;  // of the whole training that one row is

    void check() const {
        check_setting(learning_rate, "learning_rate");
        check_setting(l2, "l2");
        check_setting(share, "share");
    }

    float rate(float done) const {
        if (!cosine) return static_cast<float>(learning_rate);
        const double at = std::clamp(static_cast<double>(done), 0.0, 1.0);
        return static_cast<float>(learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * at)));
    }
    float advanced(float done, int64_t rows) const {
        return static_cast<float>(static_cast<double>(done) + share * static_cast<double>(rows));
    }
};

constexpr int64_t lanes = 8;

// Eight sums side by side, added up in a fixed order whatever the processor's vectors are.
template <int64_t fixed>
float dot(const float* __restrict p, const float* __restrict q, int64_t n_factors) {
    const int64_t n = fixed ? fixed : n_factors;
    float sums[lanes] = {};
    int64_t j = 0;
    for (; j + lanes <= n; j += lanes)
        for (int64_t lane = 0; lane < lanes; ++lane) sums[lane] += p[j + lane] * q[j + lane];
    for (int64_t lane = 0; j < n; ++j, ++lane) sums[lane] += p[j] * q[j];
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// Other processes may train on the same rows without locks (Hogwild). These are plain loads and stores, so
// that they may be vectors: each float of them is whole on every processor that this is built for.
template <int64_t fixed>
void move(float* __restrict p, float* __restrict q, int64_t n_factors, float keep, float step) {
    const int64_t n = fixed ? fixed : n_factors;
    for (int64_t j = 0; j < n; ++j) {
        const float own = p[j], other = q[j];
        p[j] = keep * own + step * other;
        q[j] = keep * other + step * own;
    }
}

struct Rating {
    float *user, *item;
    float label, weight;
};

// One step on each of these ratings, one after the other; false if an error is not finite, before its step.
template <int64_t fixed>
bool descend(std::span<const Rating> ratings, int64_t n_factors, float rate, float l2, Sums& sums) {
    const float keep = 1 - rate * l2;
    for (const Rating& rating : ratings) {
        float *const p = rating.user, *const q = rating.item;
        const float error = rating.label - (p[0] + q[0] + dot<fixed>(p + 1, q + 1, n_factors));
        if (!std::isfinite(error)) [[unlikely]]
            return false;
        const float step = rate * rating.weight * error;
        sums.loss +=
            static_cast<double>(rating.weight) * static_cast<double>(error) * static_cast<double>(error);
        sums.weight += static_cast<double>(rating.weight);
        if (rating.weight == 0) continue;
        p[0] = keep * p[0] + step;
        q[0] = keep * q[0] + step;
        move<fixed>(p + 1, q + 1, n_factors, keep, step);
    }
    return true;
}

template <class Use>
auto with_factors(int64_t n, Use use) {
    switch (n) {
        case 8:
            return use(std::integral_constant<int64_t, 8>());
        case 10:
            return use(std::integral_constant<int64_t, 10>());
        case 16:
            return use(std::integral_constant<int64_t, 16>());
        case 20:
            return use(std::integral_constant<int64_t, 20>());
        case 32:
            return use(std::integral_constant<int64_t, 32>());
        case 50:
            return use(std::integral_constant<int64_t, 50>());
        case 64:
            return use(std::integral_constant<int64_t, 64>());
        case 100:
            return use(std::integral_constant<int64_t, 100>());
        case 128:
            return use(std::integral_constant<int64_t, 128>());
        default:
            return use(std::integral_constant<int64_t, 0>());
    }
}

// The rows of a table, or what has been pulled of them: users', items', and last the share done.
class Factors {
  public:
    Factors(Matrix<float> cells, const char* name) : cells_(cells) {
        if (cells.rows < 1 || cells.columns < 2)
            value_error(name, ": has shape (", cells.rows, ", ", cells.columns,
                        "), (users + items + 1, 1 + factors) needed");
    }

    int64_t n_factors() const { return cells_.columns - 1; }
    float& done() const { return *cells_.row(cells_.rows - 1); }

    // Where a rating's two rows are; fetched ahead, for they lie anywhere.
    Rating find(const Csr& csr, const Samples<Squared>& samples, int64_t row) const {
        const auto [begin, size] = csr.row(row);
        if (size != 2) [[unlikely]]
            value_error("indptr: row ", row, " has ", size, " entries, a user and an item needed");
        const int32_t user = csr.indices[static_cast<size_t>(begin)];
        const int32_t item = csr.indices[static_cast<size_t>(begin) + 1];
        check(row, 0, user);
        check(row, 1, item);
        if (user == item) [[unlikely]]
            value_error("indices: row ", row, ": user and item are both ", user);
        const auto [label, weight] = samples.at(row);
        const Rating rating{cells_.row(user), cells_.row(item), label, static_cast<float>(weight)};
        for (int64_t j = 0; j < cells_.columns; j += 16) {
            __builtin_prefetch(rating.user + j, 1);
            __builtin_prefetch(rating.item + j, 1);
        }
        return rating;
    }

    // Rows order[begin] .. order[begin + n - 1] at one rate; false if it diverged.
    bool train(const Csr& csr, const Samples<Squared>& samples, const RowOrder& order, int64_t begin,
               int64_t n, const Descent& descent, Sums& sums) const {
        constexpr int64_t at_once = 64;
        const float rate = descent.rate(load(done()));
        const bool finite = with_factors(n_factors(), [&](auto fixed) {
            Rating ratings[at_once];
            for (int64_t from = begin; from < begin + n; from += at_once) {
                const auto size = static_cast<size_t>(std::min(at_once, begin + n - from));
                for (size_t i = 0; i < size; ++i)
                    ratings[i] = find(csr, samples, order[from + static_cast<int64_t>(i)]);
                if (!descend<fixed()>({ratings, size}, n_factors(), rate, static_cast<float>(descent.l2),
                                      sums))
                    return false;
            }
            return true;
        });
        if (finite)
            store(done(), descent.advanced(load(done()), n));
        else
            sums.loss = nan;
        return finite;
    }

  private:
    void check(int64_t row, int64_t position, int64_t index) const {
        if (index < 0 || index >= cells_.rows - 1) [[unlikely]]
            bad_index(row, position, index, cells_.rows - 1);
    }

    Matrix<float> cells_;
};

nb::tuple mf_minibatches(const Input& indptr, const Input& indices, const Input& labels, const Input& weights,
                         const Input& order, int64_t batch_size, int64_t first_batch, int64_t n_batches,
                         const Buffer& table, double learning_rate, double l2, bool cosine, double share,
                         const Buffer& step, const Buffer& progress) {
    const Descent descent{learning_rate, l2, cosine, share};
    descent.check();
    const Csr csr(indptr, indices, Input());
    const Samples<Squared> samples(labels, weights, static_cast<size_t>(csr.rows()));
    const Schedule schedule(order, csr.rows(), batch_size, first_batch, n_batches, step, progress);
    const Factors factors(matrix<float>(table, "table"), "table");
    Outcome outcome;
    {
        nb::gil_scoped_release release;
        for (int64_t b = first_batch; b < first_batch + n_batches; ++b) {
            Sums sums;
            factors.train(csr, samples, schedule.order, schedule.begin(b), schedule.rows(b), descent, sums);
            if (!outcome.add(sums, schedule.rows(b))) break;
            schedule.finish_batch();
        }
    }
    return outcome.to_python();
}

// On a copy of pulled rows, whose numbers `local` are; what they have moved by, downhill as a gradient is.
nb::tuple mf_gradient(const Input& indptr, const Input& local, const Input& labels, const Input& weights,
                      const Input& pulled, double learning_rate, double l2, bool cosine, double share) {
    const Descent descent{learning_rate, l2, cosine, share};
    descent.check();
    if (!(learning_rate > 0)) value_error("learning_rate: is 0, by which the way is divided");
    const Csr csr(indptr, local, Input(), "local");
    const Samples<Squared> samples(labels, weights, static_cast<size_t>(csr.rows()));
    const auto given = matrix<float>(pulled, "pulled");
    const auto size = static_cast<size_t>(given.rows * given.columns);
    Owned<float> result(size);
    const Factors factors({result.data.get(), given.rows, given.columns}, "pulled");
    Sums sums;
    {
        nb::gil_scoped_release release;
        std::copy_n(given.data, size, result.data.get());
        const RowOrder all(Input(), csr.rows());
        factors.train(csr, samples, all, 0, csr.rows(), descent, sums);
        const auto scale = static_cast<float>(1 / learning_rate);
        for (size_t i = 0; i < size; ++i) result[i] = (given.data[i] - result[i]) * scale;
    }
    const auto shape = {static_cast<size_t>(given.rows), static_cast<size_t>(given.columns)};
    return nb::make_tuple(to_numpy(std::move(result.data), shape), sums.loss, sums.weight);
}

// Sums of the biases of a row's entries and, if they are two, the product of their factors.
nb::object mf_outputs(const Input& indptr, const Input& indices, const Input& weights) {
    const Csr csr(indptr, indices, Input());
    const auto cells = matrix<float>(weights, "weights");
    if (cells.rows < 1 || cells.columns < 2)
        value_error("weights: have shape (", cells.rows, ", ", cells.columns,
                    "), (users + items + 1, 1 + factors) needed");
    Owned<float> result(static_cast<size_t>(csr.rows()));
    {
        nb::gil_scoped_release release;
        with_factors(cells.columns - 1, [&](auto fixed) {
            for (int64_t i = 0; i < csr.rows(); ++i) {
                const auto [begin, size] = csr.row(i);
                if (size > 2) [[unlikely]]
                    value_error("indptr: row ", i, " has ", size, " entries, at most 2 needed");
                const float* rows[2] = {};
                float sum = 0;
                for (int64_t k = 0; k < size; ++k) {
                    const int32_t index = csr.indices[static_cast<size_t>(begin + k)];
                    if (index < 0 || index >= cells.rows - 1) [[unlikely]]
                        bad_index(i, k, index, cells.rows - 1);
                    rows[k] = cells.row(index);
                    sum += rows[k][0];
                }
                if (size == 2) sum += dot<fixed()>(rows[0] + 1, rows[1] + 1, cells.columns - 1);
                result[static_cast<size_t>(i)] = sum;
            }
            return true;
        });
    }
    return to_numpy(std::move(result));
}

}  // namespace

void bind_matrix_factorization(nb::module_& m) {
    m.def("mf_minibatches", &mf_minibatches, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("labels").noconvert(), nb::arg("weights").noconvert().none(),
          nb::arg("order").noconvert().none(), nb::arg("batch_size"), nb::arg("first_batch"),
          nb::arg("n_batches"), nb::arg("table").noconvert(), nb::arg("learning_rate"), nb::arg("l2"),
          nb::arg("cosine"), nb::arg("share"), nb::arg("step").noconvert(),
          nb::arg("progress").noconvert().none());
    m.def("mf_gradient", &mf_gradient, nb::arg("indptr").noconvert(), nb::arg("local").noconvert(),
          nb::arg("labels").noconvert(), nb::arg("weights").noconvert().none(), nb::arg("pulled").noconvert(),
          nb::arg("learning_rate"), nb::arg("l2"), nb::arg("cosine"), nb::arg("share"));
    m.def("mf_outputs", &mf_outputs, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("weights").noconvert());
}

}  // namespace squall
