// Matrix factorisation with biases, by stochastic gradient descent rating by rating (Funk 2006; Koren, Bell &
// Volinsky 2009, eq. 5-8). A table row is a user's or an item's bias, then its factors; the last row's first
// number is how much of the training is done, from 0 to 1: what the learning rate follows.
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

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

// Other processes may train on the same rows without locks (Hogwild).
using Eight = float __attribute__((vector_size(32)));

template <class Vector>
[[gnu::always_inline]] inline void add_product(Vector& sum, const float* p, const float* q) {
    Vector a, b;
    read(a, p);
    read(b, q);
    sum += a * b;
}

// Sixteen sums side by side, then four, added up in one order: the same bits whatever vectors there are.
template <class Vector, int64_t fixed>
[[gnu::always_inline]] inline float dot(const float* p, const float* q, int64_t n_factors) {
    const int64_t n = fixed ? fixed : n_factors;
    constexpr int64_t width = sizeof(Vector) / sizeof(float), n_sums = 16 / width;
    Vector sums[n_sums] = {};
    int64_t j = 0;
    for (; j + 16 <= n; j += 16)
        for (int64_t k = 0; k < n_sums; ++k) add_product(sums[k], p + j + k * width, q + j + k * width);
    if (j + 8 <= n) {
        for (int64_t k = 0; k < n_sums / 2; ++k) add_product(sums[k], p + j + k * width, q + j + k * width);
        j += 8;
    }
    for (int64_t k = 0; k < n_sums / 2; ++k) sums[k] += sums[k + n_sums / 2];
    Four halves[2];
    std::memcpy(halves, sums, sizeof(halves));
    Four four = halves[0] + halves[1];
    if (j + 4 <= n) {
        add_product(four, p + j, q + j);
        j += 4;
    }
    float rest = 0;
    for (; j < n; ++j) rest += p[j] * q[j];
    return ((four[0] + four[2]) + (four[1] + four[3])) + rest;
}

template <class Vector>
[[gnu::always_inline]] inline void move_some(float* p, float* q, float keep, float step) {
    Vector own, other;
    read(own, p);
    read(other, q);
    const Vector left = own * keep + other * step, right = other * keep + own * step;
    std::memcpy(p, &left, sizeof(Vector));
    std::memcpy(q, &right, sizeof(Vector));
}

template <class Vector, int64_t fixed>
[[gnu::always_inline]] inline void move(float* p, float* q, int64_t n_factors, float keep, float step) {
    const int64_t n = fixed ? fixed : n_factors;
    constexpr int64_t width = sizeof(Vector) / sizeof(float);
    int64_t j = 0;
    for (; j + width <= n; j += width) move_some<Vector>(p + j, q + j, keep, step);
    if (width > 4 && j + 4 <= n) {
        move_some<Four>(p + j, q + j, keep, step);
        j += 4;
    }
    for (; j < n; ++j) {
        const float own = p[j], other = q[j];
        p[j] = own * keep + other * step;
        q[j] = other * keep + own * step;
    }
}

struct Rating {
    float *user, *item;
    float label, weight;
};

// One step on each of these ratings, one after the other; false if an error is not finite, before its step.
template <class Vector, int64_t fixed>
[[gnu::always_inline]] inline bool descend_by(std::span<const Rating> ratings, int64_t n_factors, float rate,
                                              float l2, Sums& sums) {
    const float keep = 1 - rate * l2;
    double loss = 0, weight = 0;
    bool finite = true;
    for (const Rating& rating : ratings) {
        float *const p = rating.user, *const q = rating.item;
        const float error = rating.label - (p[0] + q[0] + dot<Vector, fixed>(p + 1, q + 1, n_factors));
        if (!std::isfinite(error)) [[unlikely]] {
            finite = false;
            break;
        }
        const float pull = rating.weight * error;
        loss += static_cast<double>(pull) * static_cast<double>(error);
        weight += static_cast<double>(rating.weight);
        if (rating.weight == 0) continue;
        const float step = rate * pull;
        p[0] = keep * p[0] + step;
        q[0] = keep * q[0] + step;
        move<Vector, fixed>(p + 1, q + 1, n_factors, keep, step);
    }
    sums.loss += loss;
    sums.weight += weight;
    return finite;
}

template <int64_t fixed>
bool descend(std::span<const Rating> ratings, int64_t n_factors, float rate, float l2, Sums& sums) {
    return descend_by<Four, fixed>(ratings, n_factors, rate, l2, sums);
}

#ifdef __x86_64__
// The same in vectors of eight, where the processor has them; not fused, so with the same bits.
template <int64_t fixed>
[[gnu::target("avx2")]] bool descend_avx2(std::span<const Rating> ratings, int64_t n_factors, float rate,
                                          float l2, Sums& sums) {
    return descend_by<Eight, fixed>(ratings, n_factors, rate, l2, sums);
}
const bool has_avx2 = __builtin_cpu_supports("avx2");
#endif

template <int64_t fixed>
auto fastest_descent() {
#ifdef __x86_64__
    if (has_avx2) return &descend_avx2<fixed>;
#endif
    return &descend<fixed>;
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
        constexpr int64_t at_once = 32;
        const float rate = descent.rate(load(done()));
        const bool finite = with_factors(n_factors(), [&](auto fixed) {
            const auto descend_on = fastest_descent<fixed()>();
            Rating ratings[at_once];
            for (int64_t from = begin; from < begin + n; from += at_once) {
                const auto size = static_cast<size_t>(std::min(at_once, begin + n - from));
                for (size_t i = 0; i < size; ++i)
                    ratings[i] = find(csr, samples, order[from + static_cast<int64_t>(i)]);
                if (!descend_on({ratings, size}, n_factors(), rate, static_cast<float>(descent.l2), sums))
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
                if (size == 2) sum += dot<Four, fixed()>(rows[0] + 1, rows[1] + 1, cells.columns - 1);
                result[static_cast<size_t>(i)] = sum;
            }
            return true;
        });
    }
    return to_numpy(std::move(result));
}

// SplitMix64's finaliser (Steele, Lea & Flood 2014): random numbers that are a function of their place.
uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

struct Pairs {
    std::vector<int64_t> indptr{0};
    std::vector<int32_t> indices;
    std::vector<float> labels, weights;

    void add(std::span<const int32_t> entries, float label, float weight) {
        indices.insert(indices.end(), entries.begin(), entries.end());
        indptr.push_back(static_cast<int64_t>(indices.size()));
        labels.push_back(label);
        weights.push_back(weight);
    }
};

// Each of these rows, and behind it `n_negatives` items drawn for its user, without those that the user has
// in this block. What is drawn depends on the seed, the pair and the row's place in `rows`.
nb::tuple mf_with_negatives(const Input& indptr, const Input& indices, const Input& labels,
                            const Input& weights, const Input& rows, int64_t n_users, int64_t n_items,
                            int64_t n_negatives, float negative_weight, uint64_t seed) {
    if (n_users < 1 || n_items < 1 || n_items > max_step - n_users)
        value_error("n_users, n_items: are ", n_users, ", ", n_items, ", numbers >= 1 needed");
    if (n_negatives < 0) value_error("n_negatives: is ", n_negatives, ", a number >= 0 needed");
    const Csr csr(indptr, indices, Input());
    const Samples<Squared> samples(labels, weights, static_cast<size_t>(csr.rows()));
    const RowOrder order(rows, csr.rows());
    Pairs pairs;
    {
        nb::gil_scoped_release release;
        const auto entries = [&](int64_t row) {
            const auto [begin, size] = csr.row(row);
            return csr.indices.subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
        };
        const auto key = [&](int64_t user, int64_t item) { return user * (n_users + n_items) + item; };
        std::vector<int64_t> known;
        for (int64_t i = 0; i < csr.rows(); ++i)
            if (const auto row = entries(i); row.size() == 2) known.push_back(key(row[0], row[1]));
        std::sort(known.begin(), known.end());
        constexpr uint64_t golden = 0x9E3779B97F4A7C15ull;
        for (int64_t i = 0; i < order.size; ++i) {
            const auto row = entries(order[i]);
            const auto [label, weight] = samples.at(order[i]);
            pairs.add(row, label, static_cast<float>(weight));
            if (row.size() != 2 || weight == 0) continue;
            uint64_t state = mixed(seed + golden * static_cast<uint64_t>(i + 1));
            state = mixed(state ^ static_cast<uint64_t>(key(row[0], row[1])));
            for (int64_t k = 0; k < n_negatives; ++k) {
                state += golden;
                const auto drawn = static_cast<int64_t>(mixed(state) % static_cast<uint64_t>(n_items));
                const std::array pair{row[0], static_cast<int32_t>(n_users + drawn)};
                if (!std::binary_search(known.begin(), known.end(), key(pair[0], pair[1])))
                    pairs.add(pair, 0.0f, negative_weight);
            }
        }
    }
    return nb::make_tuple(to_numpy(std::move(pairs.indptr)), to_numpy(std::move(pairs.indices)),
                          to_numpy(std::move(pairs.labels)), to_numpy(std::move(pairs.weights)));
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
    m.def("mf_with_negatives", &mf_with_negatives, nb::arg("indptr").noconvert(),
          nb::arg("indices").noconvert(), nb::arg("labels").noconvert(),
          nb::arg("weights").noconvert().none(), nb::arg("rows").noconvert().none(), nb::arg("n_users"),
          nb::arg("n_items"), nb::arg("n_negatives"), nb::arg("negative_weight"), nb::arg("seed"));
    m.def("mf_outputs", &mf_outputs, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("weights").noconvert());
}

}  // namespace squall
