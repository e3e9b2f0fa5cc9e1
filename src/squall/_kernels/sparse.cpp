// Gathers, checks and products of compressed sparse rows.
#include "sparse.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "bindings.hpp"

namespace squall {
namespace {

// Rows of several blocks, numbered through, gathered into arrays that the caller has made.
class Gather {
  public:
    void add(const Csr& block) {
        blocks_.push_back(block);
        n_rows_ += block.rows();
        ends_.push_back(n_rows_);
    }

    void into(std::span<const int64_t> rows, std::span<int64_t> indptr, std::span<int32_t> indices,
              float* values) const {
        // Rows come from all over memory: where a row lies is looked up this far ahead, and by half of that
        // its entries are on their way.
        constexpr size_t ahead = 16;
        Place places[ahead] = {};
        indptr[0] = 0;
        for (size_t i = 0; i < rows.size() + ahead; ++i) {
            if (i >= ahead) copy(places[i % ahead], i - ahead, indptr, indices, values);
            if (i >= ahead / 2 && i - ahead / 2 < rows.size()) prefetch(places[(i - ahead / 2) % ahead]);
            if (i < rows.size()) {
                const Place place = places[i % ahead] = find(rows[i], i);
                __builtin_prefetch(place.block->indptr.data() + place.row);
            }
        }
        if (indptr.back() != static_cast<int64_t>(indices.size()))
            value_error("indices: has ", indices.size(), " elements, ", indptr.back(), " needed");
    }

  private:
    struct Place {
        const Csr* block;
        int64_t row;
    };

    Place find(int64_t row, size_t i) const {
        if (row < 0 || row >= n_rows_) [[unlikely]]
            index_error("rows: position ", i, ": row ", row, " is not in [0, ", n_rows_, ")");
        const auto b = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), row) - ends_.begin());
        const int64_t own = b == 0 ? row : row - ends_[b - 1];
        return {&blocks_[b], own};
    }

    static void prefetch(const Place& place) {
        const auto [begin, size] = place.block->row(place.row);
        constexpr int64_t line = 16;
        for (int64_t k = 0; k < std::min(size, 8 * line); k += line) {
            __builtin_prefetch(place.block->indices.data() + begin + k);
            if (place.block->values) __builtin_prefetch(place.block->values + begin + k);
        }
    }

    static void copy(const Place& place, size_t i, std::span<int64_t> indptr, std::span<int32_t> indices,
                     float* values) {
        const auto [begin, size] = place.block->row(place.row);
        const int64_t to = indptr[i];
        if (size > static_cast<int64_t>(indices.size()) - to) [[unlikely]]
            value_error("indices: has ", indices.size(), " elements, more needed");
        indptr[i + 1] = to + size;
        std::copy_n(place.block->indices.data() + begin, size, indices.data() + to);
        if (values == nullptr) return;
        if (place.block->values)
            std::copy_n(place.block->values + begin, size, values + to);
        else
            std::fill_n(values + to, size, 1.0f);
    }

    std::vector<Csr> blocks_;
    std::vector<int64_t> ends_;
    int64_t n_rows_ = 0;
};

void csr_gather(const nb::list& blocks, const Input& rows, const Buffer& indptr, const Buffer& indices,
                const Buffer& values) {
    Gather gather;
    for (const nb::handle block : blocks) {
        const auto arrays = nb::cast<nb::tuple>(block);
        if (arrays.size() != 3) type_error("blocks: tuples (indptr, indices, values) are needed");
        const auto array = [&](size_t i) {
            return arrays[i].is_none() ? Input() : nb::cast<Input>(arrays[i], false);
        };
        gather.add(Csr(array(0), array(1), array(2)));
    }
    const auto wanted = vector<int64_t>(rows, "rows");
    const auto out_indptr = vector<int64_t>(indptr, "indptr", wanted.size() + 1);
    const auto out_indices = vector<int32_t>(indices, "indices", indices.size());
    float* const out_values =
        values.is_valid() ? vector<float>(values, "values", out_indices.size()).data() : nullptr;
    nb::gil_scoped_release release;
    gather.into(wanted, out_indptr, out_indices, out_values);
}

void name_bad_entry(const Csr& csr, int64_t n_features) {
    for (int64_t row = 0; row < csr.rows(); ++row) {
        const auto [begin, size] = csr.row(row);
        for (int64_t k = begin; k < begin + size; ++k) {
            const int32_t index = csr.indices[static_cast<size_t>(k)];
            if (index < 0 || index >= n_features) bad_index(row, k - begin, index, n_features);
            if (csr.values && !std::isfinite(csr.values[k]))
                value_error("values: row ", row, ", position ", k - begin, ": ", csr.values[k],
                            " is not finite");
        }
    }
}

void csr_validate(const Input& indptr, const Input& indices, const Input& values, int64_t n_features) {
    const Csr csr(indptr, indices, values);
    if (n_features < 0 || n_features > int64_t{1} << 31)
        value_error("n_features: is ", n_features, ", a number in [0, 2^31] needed");
    nb::gil_scoped_release release;
    if (csr.indptr.front() != 0) value_error("indptr: starts at ", csr.indptr.front(), ", 0 needed");
    for (int64_t row = 0; row < csr.rows(); ++row) csr.row(row);
    if (csr.indptr.back() != static_cast<int64_t>(csr.indices.size()))
        value_error("indptr: ends at ", csr.indptr.back(), " but indices has ", csr.indices.size(),
                    " entries");
    // All entries at once, side by side; where they are is asked only if something is wrong.
    uint32_t largest = 0;  // a negative index reads as a huge one
    for (const int32_t index : csr.indices) largest = std::max(largest, static_cast<uint32_t>(index));
    uint32_t odd = 0;
    constexpr uint32_t exponent = 0x7f800000;  // all bits set: infinite or NaN
    if (csr.values)
        for (size_t k = 0; k < csr.indices.size(); ++k)
            odd |= static_cast<uint32_t>((std::bit_cast<uint32_t>(csr.values[k]) & exponent) == exponent);
    if (!csr.indices.empty() && (largest >= static_cast<uint64_t>(n_features) || odd != 0))
        name_bad_entry(csr, n_features);
}

template <class T>
bool only_ones(const Input& values) {
    const auto all = vector<T>(values, "values");
    nb::gil_scoped_release release;
    constexpr size_t piece = 4096;
    for (size_t begin = 0; begin < all.size(); begin += piece) {
        const size_t end = std::min(begin + piece, all.size());
        bool same = true;
        for (size_t i = begin; i < end; ++i) same &= all[i] == T{1};
        if (!same) return false;
    }
    return true;
}

bool all_ones(const Input& values) {
    return values.dtype() == nb::dtype<double>() ? only_ones<double>(values) : only_ones<float>(values);
}

nb::object csr_margins(const Input& indptr, const Input& indices, const Input& values, const Input& coef,
                       double intercept) {
    const Csr csr(indptr, indices, values);
    check_type<float>(coef, "coef", 1);
    const auto weights = strided_vector<float>(coef, "coef", coef.size());
    const auto n_features = static_cast<int64_t>(weights.size);
    Owned<float> margins(static_cast<size_t>(csr.rows()));
    {
        nb::gil_scoped_release release;
        for (int64_t row = 0; row < csr.rows(); ++row) {
            const auto [begin, size] = csr.row(row);
            const int32_t* index = csr.indices.data() + begin;
            const auto weight = [&, row = row](int64_t k) {
                const int32_t i = index[k];
                if (i < 0 || i >= n_features) [[unlikely]]
                    bad_index(row, k, i, n_features);
                return weights[static_cast<size_t>(i)];
            };
            const double sum = csr.values ? row_dot<true>(csr.values + begin, size, weight)
                                          : row_dot<false>(nullptr, size, weight);
            margins[static_cast<size_t>(row)] = static_cast<float>(sum + intercept);
        }
    }
    return to_numpy(std::move(margins));
}

}  // namespace

void bind_sparse(nb::module_& m) {
    m.def("csr_gather", &csr_gather, nb::arg("blocks"), nb::arg("rows").noconvert(),
          nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("values").noconvert().none());
    m.def("csr_validate", &csr_validate, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("values").noconvert().none(), nb::arg("n_features"));
    m.def("all_ones", &all_ones, nb::arg("values").noconvert());
    m.def("csr_margins", &csr_margins, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("values").noconvert().none(), nb::arg("coef").noconvert(), nb::arg("intercept"));
}

}  // namespace squall
