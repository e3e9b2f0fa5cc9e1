// Pull, push and catch-up of parameter tables: the store's side.
#include "bindings.hpp"
#include "rows.hpp"

namespace squall {
namespace {

nb::object gathered_to_numpy(Owned<float>&& values, size_t rows, int64_t dim) {
    return to_numpy(std::move(values.data), {rows, static_cast<size_t>(dim)});
}

int64_t table_stride(int optimizer, int64_t dim, bool lazy) {
    if (dim < 1 || dim > int64_t{1} << 31) value_error("dim: is ", dim, ", a number in [1, 2^31] needed");
    const Rule rule(optimizer, 0, 0, 0, 0, 0, 0, 0, 0, Input(), 1, 0, 0);
    return with_optimizer(
        rule, [&](auto chosen) -> int64_t { return dim * (1 + decltype(chosen)::n_state) + (lazy ? 1 : 0); });
}

// Whether a table must be lazy where not every row takes every step.
bool rule_is_lazy(const Rule& rule) {
    return with_optimizer(
        rule, [&](auto chosen) { return rule.penalized() || decltype(chosen)::idle == Idle::drifts; });
}

int64_t step_advance(const Buffer& step) { return count_step(counter(step, "step")); }

nb::object table_gather(const Input& table, const Input& rows, int64_t dim) {
    const auto cells = matrix<float>(table, "table");
    const auto wanted = vector<int64_t>(rows, "rows");
    if (dim < 1 || dim > cells.columns) value_error("dim: is ", dim, ", which does not fit the table");
    Owned<float> result(0);
    {
        nb::gil_scoped_release release;
        check_rows(wanted, cells.rows);
        result = Owned<float>(wanted.size() * static_cast<size_t>(dim));
        gather_rows(cells.data, cells.columns, wanted, dim, result.data.get());
    }
    return gathered_to_numpy(std::move(result), wanted.size(), dim);
}

nb::object table_pull(const Buffer& table, const Input& rows, int64_t dim, const Rule& rule, int64_t step,
                      int64_t n_regularized_rows) {
    const auto wanted = vector<int64_t>(rows, "rows");
    check_step(step);
    return with_table(table, dim, rule, n_regularized_rows, false, [&](const auto& full) {
        Owned<float> result(0);
        {
            nb::gil_scoped_release release;
            check_rows(wanted, full.rows());
            result = Owned<float>(wanted.size() * static_cast<size_t>(dim));
            pull_rows(full, wanted, dim, step, result.data.get());
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

void table_update(const Buffer& table, const Input& rows, const Input& grads, const Rule& rule, int64_t step,
                  int64_t n_regularized_rows) {
    const auto touched = vector<int64_t>(rows, "rows");
    check_type<float>(grads, "grads", 2);
    const auto dim = static_cast<int64_t>(grads.shape(1));
    const auto gradients = row_values(grads, "grads", touched.size(), dim);
    check_step(step, 1);
    with_table(table, dim, rule, n_regularized_rows, false, [&](const auto& full) {
        nb::gil_scoped_release release;
        check_rows(touched, full.rows());
        update_rows(full, touched, gradients.data, dim, step);
    });
}

void table_catch_up(const Buffer& table, const Rule& rule, int64_t step, int64_t n_regularized_rows,
                    int64_t dim) {
    check_step(step);
    with_table(table, dim, rule, n_regularized_rows, false, [&](const auto& full) {
        nb::gil_scoped_release release;
        for (int64_t row = 0; row < full.rows(); ++row) full.catch_up(row, step);
    });
}

void table_add(const Buffer& table, const Input& rows, const Input& deltas, double scale) {
    const auto cells = matrix<float>(table, "table");
    const auto touched = vector<int64_t>(rows, "rows");
    check_type<float>(deltas, "deltas", 2);
    const auto dim = static_cast<int64_t>(deltas.shape(1));
    const auto added = row_values(deltas, "deltas", touched.size(), dim);
    if (dim > cells.columns) value_error("deltas: ", dim, " columns do not fit the table's ", cells.columns);
    nb::gil_scoped_release release;
    check_rows(touched, cells.rows);
    add_rows(cells, touched, added.data, dim, static_cast<float>(scale));
}

}  // namespace

void bind_tables(nb::module_& m) {
    m.attr("SGD") = static_cast<int>(kind_sgd);
    m.attr("ADAGRAD") = static_cast<int>(kind_adagrad);
    m.attr("MOMENTUM") = static_cast<int>(kind_momentum);
    m.attr("NESTEROV") = static_cast<int>(kind_nesterov);
    m.attr("ADAM") = static_cast<int>(kind_adam);
    m.attr("FTRL") = static_cast<int>(kind_ftrl);
    nb::class_<Rule>(m, "Rule")
        .def(nb::init<int, double, double, double, double, double, double, double, double, const Input&,
                      int64_t, double, double>(),
             nb::arg("optimizer"), nb::arg("learning_rate"), nb::arg("l1") = 0.0, nb::arg("l2") = 0.0,
             nb::kw_only(), nb::arg("momentum") = 0.9, nb::arg("beta_1") = 0.9, nb::arg("beta_2") = 0.999,
             nb::arg("epsilon") = 1e-8, nb::arg("beta") = 1.0,
             nb::arg("levels").noconvert().none() = nb::none(), nb::arg("steps_per_level") = 1,
             nb::arg("clip_value") = 0.0, nb::arg("clip_norm") = 0.0)
        .def_prop_ro("lazy", &rule_is_lazy);
    m.def("step_advance", &step_advance, nb::arg("step").noconvert());
    m.def("table_stride", &table_stride, nb::arg("optimizer"), nb::arg("dim"), nb::arg("lazy"));
    m.def("table_gather", &table_gather, nb::arg("table").noconvert(), nb::arg("rows").noconvert(),
          nb::arg("dim"));
    m.def("table_pull", &table_pull, nb::arg("table").noconvert(), nb::arg("rows").noconvert(),
          nb::arg("dim"), nb::arg("rule"), nb::arg("step"), nb::arg("n_regularized_rows"));
    m.def("table_update", &table_update, nb::arg("table").noconvert(), nb::arg("rows").noconvert(),
          nb::arg("grads").noconvert(), nb::arg("rule"), nb::arg("step"), nb::arg("n_regularized_rows"));
    m.def("table_catch_up", &table_catch_up, nb::arg("table").noconvert(), nb::arg("rule"), nb::arg("step"),
          nb::arg("n_regularized_rows"), nb::arg("dim"));
    m.def("table_add", &table_add, nb::arg("table").noconvert(), nb::arg("rows").noconvert(),
          nb::arg("deltas").noconvert(), nb::arg("scale") = 1.0);
}

}  // namespace squall
