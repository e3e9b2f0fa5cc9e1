// Pull, push and catch-up of parameter tables: the store's side.
#include "bindings.hpp"
#include "table.hpp"

namespace squall {
namespace {

void check_rows(std::span<const int64_t> rows, int64_t n) {
    for (size_t i = 0; i < rows.size(); ++i)
        if (rows[i] < 0 || rows[i] >= n) [[unlikely]]
            index_error("rows: position ", i, ": row ", rows[i], " is not in [0, ", n, ")");
}

// Reads while other processes may write.
Owned<float> gather(const float* cells, int64_t stride, std::span<const int64_t> rows, int64_t dim) {
    Owned<float> result(rows.size() * static_cast<size_t>(dim));
    float* out = result.data.get();
    for (size_t i = 0; i < rows.size(); ++i) {
        if (i + 16 < rows.size()) __builtin_prefetch(cells + rows[i + 16] * stride);
        const float* const row = cells + rows[i] * stride;
        for (int64_t j = 0; j < dim; ++j) *out++ = load(row[j]);
    }
    return result;
}

nb::object gathered_to_numpy(Owned<float>&& values, size_t rows, int64_t dim) {
    return to_numpy(std::move(values.data), {rows, static_cast<size_t>(dim)});
}

int64_t table_stride(int optimizer, int64_t dim, bool lazy) {
    if (dim < 1 || dim > int64_t{1} << 31) value_error("dim: is ", dim, ", a number in [1, 2^31] needed");
    return with_optimizer(optimizer, 0, [&](auto chosen) -> int64_t {
        return dim * (1 + decltype(chosen)::n_state) + (lazy ? 1 : 0);
    });
}

nb::object table_gather(const Input& table, const Input& rows, int64_t dim) {
    const auto cells = matrix<float>(table, "table");
    const auto wanted = vector<int64_t>(rows, "rows");
    if (dim < 1 || dim > cells.columns) value_error("dim: is ", dim, ", which does not fit the table");
    Owned<float> result(0);
    {
        nb::gil_scoped_release release;
        check_rows(wanted, cells.rows);
        result = gather(cells.data, cells.columns, wanted, dim);
    }
    return gathered_to_numpy(std::move(result), wanted.size(), dim);
}

nb::object table_pull(const Buffer& table, const Input& rows, int64_t dim, int optimizer,
                      double learning_rate, double l1, double l2, int64_t step, int64_t n_regularized_rows) {
    const auto wanted = vector<int64_t>(rows, "rows");
    check_step(step);
    const TableSettings settings{optimizer, learning_rate, l1, l2, n_regularized_rows};
    return with_table(table, dim, settings, false, [&](const auto& full) {
        Owned<float> result(0);
        {
            nb::gil_scoped_release release;
            check_rows(wanted, full.rows());
            for (const int64_t row : wanted) full.catch_up(row, step);
            result = gather(full.row(0), full.stride(), wanted, dim);
        }
        return gathered_to_numpy(std::move(result), wanted.size(), dim);
    });
}

Matrix<const float> row_values(const Input& array, const char* name, size_t rows, int64_t dim) {
    const auto values = matrix<float>(array, name);
    if (values.rows != static_cast<int64_t>(rows) || values.columns != dim)
        value_error(name, ": has shape (", values.rows, ", ", values.columns, "), (", rows, ", ", dim,
                    ") needed");
    return values;
}

void table_update(const Buffer& table, const Input& rows, const Input& grads, int optimizer,
                  double learning_rate, double l1, double l2, int64_t step, int64_t n_regularized_rows) {
    const auto touched = vector<int64_t>(rows, "rows");
    check_type<float>(grads, "grads", 2);
    const auto dim = static_cast<int64_t>(grads.shape(1));
    const auto gradients = row_values(grads, "grads", touched.size(), dim);
    check_step(step, 1);
    const TableSettings settings{optimizer, learning_rate, l1, l2, n_regularized_rows};
    with_table(table, dim, settings, false, [&](const auto& full) {
        nb::gil_scoped_release release;
        check_rows(touched, full.rows());
        if (dim == 1) {
            const auto id = [&](int64_t i) { return touched[static_cast<size_t>(i)]; };
            full.step_rows(id, gradients.rows, gradients.data, step);
        } else {
            for (int64_t i = 0; i < gradients.rows; ++i)
                full.step_row(touched[static_cast<size_t>(i)], gradients.row(i), step);
        }
    });
}

void table_catch_up(const Buffer& table, int optimizer, double learning_rate, double l1, double l2,
                    int64_t step, int64_t n_regularized_rows, int64_t dim) {
    check_step(step);
    const TableSettings settings{optimizer, learning_rate, l1, l2, n_regularized_rows};
    with_table(table, dim, settings, false, [&](const auto& full) {
        nb::gil_scoped_release release;
        for (int64_t row = 0; row < full.rows(); ++row) full.catch_up(row, step);
    });
}

void table_add(const Buffer& table, const Input& rows, const Input& deltas) {
    const auto cells = matrix<float>(table, "table");
    const auto touched = vector<int64_t>(rows, "rows");
    check_type<float>(deltas, "deltas", 2);
    const auto dim = static_cast<int64_t>(deltas.shape(1));
    const auto added = row_values(deltas, "deltas", touched.size(), dim);
    if (dim > cells.columns) value_error("deltas: ", dim, " columns do not fit the table's ", cells.columns);
    nb::gil_scoped_release release;
    check_rows(touched, cells.rows);
    for (int64_t i = 0; i < added.rows; ++i) {
        float* const row = cells.row(touched[static_cast<size_t>(i)]);
        for (int64_t j = 0; j < dim; ++j) store(row[j], load(row[j]) + added.row(i)[j]);
    }
}

}  // namespace

void bind_tables(nb::module_& m) {
    m.attr("SGD") = static_cast<int>(kind_sgd);
    m.attr("ADAGRAD") = static_cast<int>(kind_adagrad);
    m.def("table_stride", &table_stride, nb::arg("optimizer"), nb::arg("dim"), nb::arg("lazy"));
    m.def("table_gather", &table_gather, nb::arg("table").noconvert(), nb::arg("rows").noconvert(),
          nb::arg("dim"));
    m.def("table_pull", &table_pull, nb::arg("table").noconvert(), nb::arg("rows").noconvert(),
          nb::arg("dim"), nb::arg("optimizer"), nb::arg("learning_rate"), nb::arg("l1"), nb::arg("l2"),
          nb::arg("step"), nb::arg("n_regularized_rows"));
    m.def("table_update", &table_update, nb::arg("table").noconvert(), nb::arg("rows").noconvert(),
          nb::arg("grads").noconvert(), nb::arg("optimizer"), nb::arg("learning_rate"), nb::arg("l1"),
          nb::arg("l2"), nb::arg("step"), nb::arg("n_regularized_rows"));
    m.def("table_catch_up", &table_catch_up, nb::arg("table").noconvert(), nb::arg("optimizer"),
          nb::arg("learning_rate"), nb::arg("l1"), nb::arg("l2"), nb::arg("step"),
          nb::arg("n_regularized_rows"), nb::arg("dim"));
    m.def("table_add", &table_add, nb::arg("table").noconvert(), nb::arg("rows").noconvert(),
          nb::arg("deltas").noconvert());
}

}  // namespace squall
