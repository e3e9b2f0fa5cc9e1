// LIBSVM text for Python: the parser's settings checked, its rows as arrays.
#include "libsvm.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <mutex>

#include "arrays.hpp"
#include "bindings.hpp"

namespace squall {
namespace {

template <class T>
nb::object taken(const Growing<T>& values) {
    auto* kept = new std::shared_ptr<T[]>(values.shared());
    nb::capsule owner(kept,
                      [](void* pointer) noexcept { delete static_cast<std::shared_ptr<T[]>*>(pointer); });
    return nb::cast(nb::ndarray<nb::numpy, T>(kept->get(), {values.size()}, owner));
}

class BoundLibsvmParser {
  public:
    BoundLibsvmParser(int base, bool base_is_fixed, int64_t n_features, bool drop,
                      const std::string& duplicates, bool skip, const nb::list& labels,
                      std::optional<bool> has_labels, std::optional<bool> has_qids)
        : parser_(checked({base, base_is_fixed, n_features, drop, Duplicates::refuse, skip}, duplicates)) {
        parser_.has_labels = has_labels;
        parser_.has_qids = has_qids;
        for (nb::handle label : labels) parser_.label_code(nb::cast<double>(label));
    }

    size_t feed(const Input& buffer) {
        const auto text = byte_view(buffer, "buffer");
        nb::gil_scoped_release release;
        const std::lock_guard lock(mutex_);
        return parser_.feed(text);
    }

    nb::tuple take() {
        const auto lock = locked();
        parser_.begin(0);
        nb::object values = nb::none(), labels = nb::none(), qids = nb::none();
        if (!parser_.all_ones) values = taken(parser_.values);
        if (parser_.has_labels.value_or(false)) labels = taken(parser_.labels);
        if (parser_.has_qids.value_or(false)) qids = taken(parser_.qids);
        nb::object indptr = taken(parser_.indptr), indices = taken(parser_.indices);
        parser_.clear();
        return nb::make_tuple(indptr, indices, values, labels, qids);
    }

    void clear() {
        const auto lock = locked();
        parser_.clear();
    }

    void forget_labels() {
        const auto lock = locked();
        if (parser_.labels.size() != 0) value_error("forget_labels: rows that were not taken have codes");
        parser_.forget_labels();
    }

    int64_t n_bytes() {
        const auto lock = locked();
        const size_t row = 8 + 4 * parser_.has_labels.value_or(false) + 8 * parser_.has_qids.value_or(false);
        return static_cast<int64_t>(parser_.indices.size() * (parser_.all_ones ? 4 : 12) +
                                    parser_.indptr.size() * row);
    }

    nb::dict seen() {
        const auto lock = locked();
        nb::dict seen;
        seen["n_lines"] = parser_.n_lines;
        seen["n_rows"] = parser_.n_rows;
        seen["n_dropped"] = parser_.n_dropped;
        seen["n_skipped"] = parser_.n_skipped;
        seen["least"] = parser_.largest < 0 ? nb::object(nb::none()) : nb::object(nb::int_(parser_.least));
        seen["largest"] = parser_.largest;
        seen["has_labels"] = parser_.has_labels;
        seen["has_qids"] = parser_.has_qids;
        seen["labels"] = parser_.label_values;
        nb::list problems;
        for (const auto& problem : parser_.problems)
            problems.append(nb::make_tuple(problem.line, problem.column,
                                           nb::bytes(problem.token.data(), problem.token.size()),
                                           problem.what));
        seen["problems"] = problems;
        return seen;
    }

  private:
    static LibsvmSettings checked(LibsvmSettings settings, const std::string& duplicates) {
        if (settings.base != 0 && settings.base != 1)
            value_error("base: is ", settings.base, ", 0 or 1 needed");
        if (settings.n_features >= LibsvmParser::max_index + 1)
            value_error("n_features: is ", settings.n_features, ", a number below 2^31 needed");
        if (duplicates == "sum")
            settings.duplicates = Duplicates::sum;
        else if (duplicates == "last")
            settings.duplicates = Duplicates::last;
        else if (duplicates != "raise")
            value_error("duplicates: is ", duplicates, ", one of raise, sum, last needed");
        return settings;
    }

    std::unique_lock<std::mutex> locked() {
        nb::gil_scoped_release release;
        return std::unique_lock(mutex_);
    }

    std::mutex mutex_;
    LibsvmParser parser_;
};

}  // namespace

void bind_libsvm(nb::module_& m) {
    nb::class_<BoundLibsvmParser>(m, "LibsvmParser")
        .def(nb::init<int, bool, int64_t, bool, const std::string&, bool, const nb::list&,
                      std::optional<bool>, std::optional<bool>>(),
             nb::arg("base"), nb::arg("base_is_fixed"), nb::arg("n_features"), nb::arg("drop"),
             nb::arg("duplicates"), nb::arg("skip"), nb::arg("labels"), nb::arg("has_labels") = nb::none(),
             nb::arg("has_qids") = nb::none())
        .def("feed", &BoundLibsvmParser::feed, nb::arg("buffer").noconvert(),
             "Read whole lines; returns the bytes read, fewer if a row was refused.")
        .def("take", &BoundLibsvmParser::take,
             "(indptr, indices, values or None if all are 1, label codes or None, qids or None) since the "
             "last time.")
        .def("clear", &BoundLibsvmParser::clear, "Forget the rows that were not taken.")
        .def("forget_labels", &BoundLibsvmParser::forget_labels,
             "Give codes anew, from 0 on; only once all rows were taken.")
        .def("seen", &BoundLibsvmParser::seen, "What was seen so far.")
        .def_prop_ro("n_bytes", &BoundLibsvmParser::n_bytes, "Bytes of what is there to take.");
}

}  // namespace squall
