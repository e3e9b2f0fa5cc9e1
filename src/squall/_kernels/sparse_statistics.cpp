// What the columns of compressed sparse rows hold: sums of equal entries, moments, largest magnitudes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "bindings.hpp"
#include "sparse.hpp"

namespace squall {
namespace {

// Rows whose values are float32, float64 or all 1.
class Entries {
  public:
    Entries(const Input& indptr, const Input& indices, const Input& values, int64_t width)
        : rows_(indptr, indices, Input()), width_(width) {
        if (width < 0 || width > std::numeric_limits<int32_t>::max())
            value_error("width: is ", width, ", a number in [0, 2^31) needed");
        if (!values.is_valid()) return;
        if (values.dtype() == nb::dtype<float>())
            narrow_ = vector<float>(values, "values", rows_.indices.size()).data();
        else
            wide_ = vector<double>(values, "values", rows_.indices.size()).data();
    }

    int64_t rows() const { return rows_.rows(); }
    size_t width() const { return static_cast<size_t>(width_); }
    double value(int64_t k) const { return wide_ ? wide_[k] : narrow_ ? static_cast<double>(narrow_[k]) : 1; }

    // `visit(index, k)` for every entry k of a row.
    template <class Visit>
    void row(int64_t i, Visit visit) const {
        const auto [begin, size] = rows_.row(i);
        for (int64_t k = begin; k < begin + size; ++k) {
            const int32_t index = rows_.indices[static_cast<size_t>(k)];
            if (index < 0 || index >= width_) [[unlikely]]
                bad_index(i, k - begin, index, width_);
            visit(static_cast<size_t>(index), k);
        }
    }

    template <class Visit>
    void all(Visit visit) const {
        for (int64_t i = 0; i < rows(); ++i) row(i, visit);
    }

  private:
    Csr rows_;
    int64_t width_;
    const float* narrow_ = nullptr;
    const double* wide_ = nullptr;
};

struct Summed {
    std::vector<int64_t> indptr{0};
    std::vector<int32_t> indices;
    std::vector<double> values;
};

bool has_equal(const Entries& entries) {
    std::vector<size_t> row;
    for (int64_t i = 0; i < entries.rows(); ++i) {
        row.clear();
        bool ascending = true;
        entries.row(i, [&](size_t index, int64_t) {
            ascending &= row.empty() || row.back() < index;
            row.push_back(index);
        });
        if (ascending) continue;
        std::sort(row.begin(), row.end());
        if (std::adjacent_find(row.begin(), row.end()) != row.end()) return true;
    }
    return false;
}

Summed summed(const Entries& entries) {
    Summed out;
    std::vector<std::pair<size_t, int64_t>> row;  // by index, then in the order they stand in
    for (int64_t i = 0; i < entries.rows(); ++i) {
        row.clear();
        entries.row(i, [&](size_t index, int64_t k) { row.emplace_back(index, k); });
        std::sort(row.begin(), row.end());
        const auto begin = static_cast<size_t>(out.indptr.back());
        for (const auto& [index, k] : row) {
            if (out.indices.size() > begin && static_cast<size_t>(out.indices.back()) == index) {
                out.values.back() += entries.value(k);
            } else {
                out.indices.push_back(static_cast<int32_t>(index));
                out.values.push_back(entries.value(k));
            }
        }
        out.indptr.push_back(static_cast<int64_t>(out.indices.size()));
    }
    return out;
}

nb::object csr_summed(const Input& indptr, const Input& indices, const Input& values, int64_t width) {
    const Entries entries(indptr, indices, values, width);
    std::optional<Summed> out;
    {
        nb::gil_scoped_release release;
        if (has_equal(entries)) out = summed(entries);
    }
    if (!out) return nb::none();
    return nb::make_tuple(to_numpy(std::move(out->indptr)), to_numpy(std::move(out->indices)),
                          to_numpy(std::move(out->values)));
}

// Two passes: means, then squared deviations from them. What is not stored is 0, NaN is missing.
nb::tuple csr_moments(const Input& indptr, const Input& indices, const Input& values, int64_t width) {
    const Entries entries(indptr, indices, values, width);
    std::vector<double> n(entries.width(), static_cast<double>(entries.rows())), mean(entries.width()),
        m2(entries.width());
    {
        nb::gil_scoped_release release;
        entries.all([&](size_t index, int64_t k) {
            const double value = entries.value(k);
            if (std::isnan(value))
                n[index] -= 1;
            else
                mean[index] += value;
        });
        for (size_t i = 0; i < n.size(); ++i) mean[i] /= std::max(n[i], 1.0);
        std::vector<double> zeros = n;
        entries.all([&](size_t index, int64_t k) {
            const double deviation = entries.value(k) - mean[index];
            if (std::isnan(deviation)) return;
            m2[index] += deviation * deviation;
            zeros[index] -= 1;
        });
        for (size_t i = 0; i < n.size(); ++i) m2[i] += zeros[i] * mean[i] * mean[i];
    }
    return nb::make_tuple(to_numpy(std::move(n)), to_numpy(std::move(mean)), to_numpy(std::move(m2)));
}

// 0 without values; NaN is passed over.
nb::object csr_largest(const Input& indptr, const Input& indices, const Input& values, int64_t width) {
    const Entries entries(indptr, indices, values, width);
    std::vector<double> largest(entries.width());
    {
        nb::gil_scoped_release release;
        entries.all([&](size_t index, int64_t k) {
            largest[index] = std::max(largest[index], std::fabs(entries.value(k)));
        });
    }
    return to_numpy(std::move(largest));
}

}  // namespace

void bind_sparse_statistics(nb::module_& m) {
    const auto function = [&m](const char* name, auto kernel) {
        m.def(name, kernel, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
              nb::arg("values").noconvert().none(), nb::arg("width"));
    };
    function("csr_summed", &csr_summed);
    function("csr_moments", &csr_moments);
    function("csr_largest", &csr_largest);
}

}  // namespace squall
