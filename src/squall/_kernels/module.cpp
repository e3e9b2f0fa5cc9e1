// The extension squall._kernels._native; its documentation is in squall/_kernels/__init__.py.
#include "bindings.hpp"

NB_MODULE(_native, m) {
    squall::bind_calling(m);
    squall::bind_checksum(m);
    squall::bind_csv(m);
    squall::bind_csv_columns(m);
    squall::bind_factorization(m);
    squall::bind_hashing(m);
    squall::bind_joining(m);
    squall::bind_libsvm(m);
    squall::bind_logistic(m);
    squall::bind_matrix_factorization(m);
    squall::bind_objectives(m);
    squall::bind_packing(m);
    squall::bind_serving(m);
    squall::bind_softmax(m);
    squall::bind_sparse(m);
    squall::bind_sparse_statistics(m);
    squall::bind_string_dictionary(m);
    squall::bind_tables(m);
    squall::bind_topics(m);
    squall::bind_training(m);
}
