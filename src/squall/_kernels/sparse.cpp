// Gathers, checks and products of compressed sparse rows.
#include "sparse.hpp"

#include <algorithm>
#include <limits>

#include "bindings.hpp"

namespace squall {
namespace {

nb::tuple csr_take(const Input& indptr, const Input& indices, const Input& values, const Input& rows) {
    const Csr csr(indptr, indices, values);
    const auto wanted = vector<int64_t>(rows, "rows");
    Owned<int64_t> out_indptr(wanted.size() + 1);
    std::unique_ptr<int32_t[]> out_indices;
    std::unique_ptr<float[]> out_values;
    size_t nnz = 0;
    {
        nb::gil_scoped_release release;
        out_indptr[0] = 0;
        for (size_t i = 0; i < wanted.size(); ++i) {
            const int64_t row = wanted[i];
            if (row < 0 || row >= csr.rows())
                index_error("rows: position ", i, ": row ", row, " is not in [0, ", csr.rows(), ")");
            out_indptr[i + 1] = out_indptr[i] + csr.row(row).size;
        }
        nnz = static_cast<size_t>(out_indptr[wanted.size()]);
        out_indices = std::make_unique_for_overwrite<int32_t[]>(nnz);
        if (csr.values) out_values = std::make_unique_for_overwrite<float[]>(nnz);
        for (size_t i = 0; i < wanted.size(); ++i) {
            const auto [begin, size] = csr.row(wanted[i]);
            std::copy_n(csr.indices.data() + begin, size, out_indices.get() + out_indptr[i]);
            if (csr.values) std::copy_n(csr.values + begin, size, out_values.get() + out_indptr[i]);
        }
    }
    nb::object taken_values = nb::none();
    if (csr.values) taken_values = to_numpy(std::move(out_values), {nnz});
    return nb::make_tuple(to_numpy(std::move(out_indptr)), to_numpy(std::move(out_indices), {nnz}),
                          taken_values);
}

void csr_validate(const Input& indptr, const Input& indices, const Input& values, int64_t n_features) {
    const Csr csr(indptr, indices, values);
    if (n_features < 0 || n_features > int64_t{1} << 31)
        value_error("n_features: is ", n_features, ", a number in [0, 2^31] needed");
    nb::gil_scoped_release release;
    if (csr.indptr.front() != 0) value_error("indptr: starts at ", csr.indptr.front(), ", 0 needed");
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
    if (csr.indptr.back() != static_cast<int64_t>(csr.indices.size()))
        value_error("indptr: ends at ", csr.indptr.back(), " but indices has ", csr.indices.size(),
                    " entries");
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
    m.def("csr_take", &csr_take, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("values").noconvert().none(), nb::arg("rows").noconvert());
    m.def("csr_validate", &csr_validate, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("values").noconvert().none(), nb::arg("n_features"));
    m.def("csr_margins", &csr_margins, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("values").noconvert().none(), nb::arg("coef").noconvert(), nb::arg("intercept"));
}

}  // namespace squall
