"""Input that real people feed such systems: for each known trap the tests that step into it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TRAPS = {
    "an index base guessed for each file": [
        "data/test_libsvm.py::test_the_index_base_is_decided_for_the_whole_set",
        "data/test_libsvm.py::test_an_index_0_or_a_label_that_comes_late_is_as_good_as_early",
    ],
    "partitions and test sets of other widths": [
        "data/test_libsvm.py::test_one_width_for_training_and_test_rows",
        "data/test_dataset_views.py::test_concat_of_matrices",
    ],
    "indices beyond 2**31 or negative; integers that lose digits": [
        "data/test_libsvm.py::test_what_cannot_be_read_is_placed",
        "data/test_libsvm.py::test_query_ids_keep_every_digit",
        "data/test_csv.py::test_nothing_is_rounded_in_silence",
        "data/test_csv.py::test_integers_beyond_int64_are_kept_as_text",
        "data/test_bow.py::test_counts_keep_every_digit",
    ],
    "indices that are unsorted, or come twice": [
        "data/test_libsvm.py::test_indices_in_any_order",
        "data/test_libsvm.py::test_duplicate_indices",
    ],
    "glued and malformed tokens": [
        "data/test_libsvm.py::test_what_cannot_be_read_is_placed",
        "data/test_odd_rows.py::test_a_row_that_cannot_be_read_is_an_error_or_left_out",
    ],
    "line ends, byte-order marks, blanks, seams between files, ranges of bytes": [
        "data/test_inputs.py::test_each_line_is_in_exactly_one_piece",
        "data/test_libsvm.py::test_the_same_rows_however_lines_end",
        "data/test_libsvm.py::test_two_files_do_not_merge_at_the_seam",
        "data/test_libsvm.py::test_a_split_at_every_byte_gives_the_same_rows",
        "data/test_csv.py::test_line_ends_bom_blank_lines_blanks",
    ],
    "labels of every sort, of one class, of one class in a partition": [
        "data/test_csv.py::test_label_maps_are_sorted",
        "data/test_libsvm.py::test_label_maps_are_sorted",
        "data/test_libsvm.py::test_labels_that_are_too_many_to_be_classes_stay_numbers",
        "estimators/test_logistic.py::test_labels_of_every_sort",
        "estimators/test_logistic.py::test_data_that_cannot_be_trained_on",
        "estimators/test_logistic.py::test_all_rows_on_one_side_of_a_split_may_have_one_label",
    ],
    "missing and infinite values, columns without any": [
        "data/test_csv.py::test_missing_values",
        "data/test_csv.py::test_inf_is_named_not_swallowed",
        "data/test_csv.py::test_an_empty_column_stays_with_a_warning",
        "preprocessing/test_scaling.py::test_an_infinite_value_is_refused_by_name",
        "preprocessing/test_layout.py::test_a_missing_value_is_refused_by_name",
    ],
    "quoted line ends at an edge, a kind decided for each chunk": [
        "data/test_pieces.py::test_a_split_at_every_byte_gives_the_same_records",
        "data/test_pieces.py::test_any_cuts_give_what_pythons_csv_reads",
        "data/test_csv.py::test_kinds_are_decided_over_the_whole_file",
        "data/test_csv.py::test_quotes",
    ],
    "compressed files that are cut short; names that lie": [
        "data/test_inputs.py::test_compression_is_known_by_its_first_bytes",
        "data/test_csv.py::test_a_damaged_file_leaves_nothing",
        "data/test_libsvm.py::test_a_file_cut_short_is_a_hard_error",
    ],
    "constant columns": [
        "preprocessing/test_minmax.py::test_a_constant_column_becomes_the_lower_end",
        "preprocessing/test_scaling.py::test_a_constant_column_stays_finite",
    ],
    "hashes that differ between processes; signs, negative zeros": [
        "preprocessing/test_hashing.py::test_another_process_finds_the_same_slots",
        "preprocessing/test_hashing.py::test_a_sign_is_a_second_hash_of_the_same_text",
        "kernels/test_hashing.py::test_published_vectors",
        "data/test_dataset.py::test_keys_are_the_same_in_every_process",
    ],
    "training that diverges": [
        "estimators/test_logistic.py::test_divergence_names_learning_rate_and_epoch_and_the_next_fit_works",
        "kernels/test_training.py::test_margins_far_out_do_not_overflow",
    ],
    "fewer rows than workers, partitions or blocks; none": [
        "data/test_iterator.py::test_more_slots_than_blocks_is_an_empty_stream_at_once",
        "data/test_iterator.py::test_no_rows_at_all",
        "data/test_dataset.py::test_no_rows",
        "data/test_csv.py::test_errors_say_what_where_and_how_to_fix",
    ],
    "explicit zeros, rows of zeros, weights of zero": [
        "data/test_arrays.py::test_explicit_zeros_and_empty_rows",
        "preprocessing/test_layout.py::test_zeros_that_a_sparse_column_stores_mean_nothing",
        "preprocessing/test_tfidf.py::test_a_stored_zero_is_as_good_as_none",
        "estimators/test_logistic.py::test_rows_of_weight_zero_are_ignored",
    ],
    "no labels in the file to predict": [
        "data/test_libsvm.py::test_rows_without_labels_are_read",
        "data/test_csv.py::test_without_labels_rows_are_still_read",
        "cli/test_cli.py::test_predict_prints_to_standard_output_and_needs_no_label",
    ],
}
"""In the order of the collection of public bug reports that they come from."""


@pytest.mark.parametrize("trap", TRAPS)
def test_the_tests_of_each_trap_are_there(trap: str) -> None:
    """Whoever renames or removes one is asked what steps into the trap from then on."""
    for test in TRAPS[trap]:
        file, _, name = test.partition("::")
        found = re.search(rf"^def {name}\(", (Path(__file__).parent / file).read_text(), re.MULTILINE)
        assert found, test
