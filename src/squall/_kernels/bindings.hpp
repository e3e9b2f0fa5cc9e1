// One function per source file adds its names to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace squall {

void bind_checksum(nanobind::module_& m);
void bind_csv(nanobind::module_& m);
void bind_frames(nanobind::module_& m);
void bind_hashing(nanobind::module_& m);
void bind_logistic(nanobind::module_& m);
void bind_sparse(nanobind::module_& m);
void bind_string_dictionary(nanobind::module_& m);
void bind_tables(nanobind::module_& m);
void bind_training(nanobind::module_& m);

}  // namespace squall
