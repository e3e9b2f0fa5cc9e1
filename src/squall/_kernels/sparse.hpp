// Compressed sparse rows: checked access to one row at a time.
#pragma once

#include "arrays.hpp"

namespace squall {

struct Csr {
    std::span<const int64_t> indptr;
    std::span<const int32_t> indices;
    const float* values;  // null: all ones

    Csr(const Input& indptr_, const Input& indices_, const Input& values_,
        const char* indices_name = "indices")
        : indptr(vector<int64_t>(indptr_, "indptr")),
          indices(vector<int32_t>(indices_, indices_name)),
          values(optional_vector<float>(values_, "values", indices.size())) {
        if (indptr.empty()) value_error("indptr: is empty, rows + 1 elements needed");
    }

    int64_t rows() const { return static_cast<int64_t>(indptr.size()) - 1; }

    struct Span {
        int64_t begin, size;
    };

    // The positions of one row; every caller goes through this check.
    Span row(int64_t i) const {
        const int64_t begin = indptr[static_cast<size_t>(i)], end = indptr[static_cast<size_t>(i) + 1];
        if (begin < 0 || end < begin || end > static_cast<int64_t>(indices.size())) [[unlikely]]
            bad_row(i, begin, end);
        return {begin, end - begin};
    }

    [[noreturn, gnu::noinline, gnu::cold]] void bad_row(int64_t i, int64_t begin, int64_t end) const {
        value_error("indptr: row ", i, " spans [", begin, ", ", end, "), not a range within ", indices.size(),
                    " entries");
    }
};

// Raised by every kernel that meets a feature outside its table.
[[noreturn, gnu::noinline, gnu::cold]] inline void bad_index(int64_t row, int64_t position, int64_t index,
                                                             int64_t n_features) {
    index_error("indices: row ", row, ", position ", position, ": feature ", index, " is not in [0, ",
                n_features, ")");
}

// Which rows to visit: a list, or all in order when absent.
struct RowOrder {
    const int32_t* rows;
    int64_t size, n_rows;

    RowOrder(const Input& order, int64_t n_rows_) : rows(nullptr), size(n_rows_), n_rows(n_rows_) {
        if (!order.is_valid()) return;
        const auto list = vector<int32_t>(order, "order");
        rows = list.data();
        size = static_cast<int64_t>(list.size());
    }

    int64_t operator[](int64_t i) const {
        if (rows == nullptr) return i;
        const int64_t row = rows[i];
        if (row < 0 || row >= n_rows) [[unlikely]]
            index_error("order: position ", i, ": row ", row, " is not in [0, ", n_rows, ")");
        return row;
    }
};

// Sum of value * weight over one row in four double partial sums: exact enough for any row length and
// free of one long chain of dependent additions. `weight(k)` gives the weight of the row's k-th entry.
template <bool has_values, class Weight>
inline double row_dot(const float* values, int64_t n, Weight weight) {
    const auto term = [&](int64_t k) {
        const double w = weight(k);
        return has_values ? static_cast<double>(values[k]) * w : w;
    };
    double sum[4] = {0, 0, 0, 0};
    int64_t k = 0;
    for (; k + 4 <= n; k += 4)
        for (int lane = 0; lane < 4; ++lane) sum[lane] += term(k + lane);
    for (int lane = 0; k < n; ++k, ++lane) sum[lane] += term(k);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

}  // namespace squall
