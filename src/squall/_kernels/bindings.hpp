// One function per source file adds its names to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace squall {

// An empty class, for constants.
inline nanobind::object new_namespace(nanobind::module_& m, const char* name) {
    nanobind::object made = nanobind::module_::import_("types").attr("new_class")(name);
    made.attr("__module__") = m.attr("__name__");
    m.attr(name) = made;
    return made;
}

void bind_calling(nanobind::module_& m);
void bind_checksum(nanobind::module_& m);
void bind_csv(nanobind::module_& m);
void bind_csv_columns(nanobind::module_& m);
void bind_factorization(nanobind::module_& m);
void bind_hashing(nanobind::module_& m);
void bind_joining(nanobind::module_& m);
void bind_libsvm(nanobind::module_& m);
void bind_logistic(nanobind::module_& m);
void bind_matrix_factorization(nanobind::module_& m);
void bind_objectives(nanobind::module_& m);
void bind_packing(nanobind::module_& m);
void bind_serving(nanobind::module_& m);
void bind_softmax(nanobind::module_& m);
void bind_sparse(nanobind::module_& m);
void bind_sparse_statistics(nanobind::module_& m);
void bind_string_dictionary(nanobind::module_& m);
void bind_tables(nanobind::module_& m);
void bind_topics(nanobind::module_& m);
void bind_training(nanobind::module_& m);

}  // namespace squall
