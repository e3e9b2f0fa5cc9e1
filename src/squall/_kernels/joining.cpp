// Columns side by side as compressed sparse rows.
#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <variant>
#include <vector>

#include "bindings.hpp"
#include "sparse.hpp"

namespace squall {
namespace {

// Numbers of one type whose rows and columns may lie apart.
template <class T>
struct Cells {
    const T* data;
    int64_t row_stride, column_stride;
};

using AnyCells = std::variant<Cells<float>, Cells<double>, Cells<int64_t>, Cells<uint8_t>>;

template <class T>
Cells<T> cells_of(const Input& array) {
    check_type<T>(array, "parts", array.ndim());
    return {static_cast<const T*>(array.data()), array.stride(0), array.ndim() > 1 ? array.stride(1) : 0};
}

AnyCells any_cells(const Input& array) {
    if (array.dtype() == nb::dtype<float>()) return cells_of<float>(array);
    if (array.dtype() == nb::dtype<int64_t>()) return cells_of<int64_t>(array);
    if (array.dtype() == nb::dtype<uint8_t>()) return cells_of<uint8_t>(array);
    return cells_of<double>(array);
}

// Consecutive columns that are all of numbers, or one of sparse rows.
struct Part {
    int64_t width, offset;
    std::vector<std::pair<AnyCells, int64_t>> matrices;  // each with its width
    std::optional<Csr> rows;
};

class Join {
  public:
    explicit Join(int64_t n_rows) : n_rows_(n_rows) {
        if (n_rows < 0) value_error("n_rows: is ", n_rows, ", a number >= 0 needed");
    }

    void add(const Input& array) {
        if (!array.is_valid() || array.ndim() < 1 || array.ndim() > 2)
            type_error("parts: an array of one or two dimensions is needed");
        check_rows(static_cast<int64_t>(array.shape(0)));
        const int64_t width = array.ndim() > 1 ? static_cast<int64_t>(array.shape(1)) : 1;
        if (parts_.empty() || parts_.back().rows) parts_.push_back({0, width_, {}, {}});
        Part& part = parts_.back();
        part.matrices.emplace_back(any_cells(array), width);
        has_values = true;
        part.width += width;
        widen(width);
        widest_ = std::max(widest_, part.width);
    }

    void add(const Csr& rows, int64_t width) {
        if (width < 0) value_error("width: is ", width, ", a number >= 0 needed");
        check_rows(rows.rows());
        has_values |= rows.values != nullptr;
        parts_.push_back({width, width_, {}, rows});
        widen(width);
    }

    // Where each row's entries end; `indptr` has n_rows + 1 elements.
    void count(int64_t* indptr) const {
        std::vector<float> tile(static_cast<size_t>(widest_ * at_once));
        std::fill_n(indptr, n_rows_ + 1, 0);
        for (int64_t begin = 0; begin < n_rows_; begin += at_once) {
            const int64_t n = std::min(at_once, n_rows_ - begin);
            for (const Part& part : parts_) {
                if (!part.rows) convert(part, begin, n, tile.data());
                for (int64_t i = 0; i < n; ++i)
                    indptr[begin + i + 1] += part.rows ? part.rows->row(begin + i).size
                                                       : nonzero(tile.data() + i * part.width, part.width);
            }
        }
        for (int64_t i = 0; i < n_rows_; ++i) indptr[i + 1] += indptr[i];
    }

    // The entries in order; room for one more than there are is needed. `values` may be null.
    void fill(const int64_t* indptr, int32_t* indices, float* values) {
        std::vector<std::vector<float>> tiles;
        for (const Part& part : parts_)
            tiles.emplace_back(part.rows ? 0 : static_cast<size_t>(part.width * at_once));
        for (int64_t begin = 0; begin < n_rows_; begin += at_once) {
            const int64_t n = std::min(at_once, n_rows_ - begin);
            for (size_t p = 0; p < parts_.size(); ++p)
                if (!parts_[p].rows) finite &= convert(parts_[p], begin, n, tiles[p].data());
            for (int64_t i = 0; i < n; ++i) {
                int64_t at = indptr[begin + i];
                for (size_t p = 0; p < parts_.size(); ++p)
                    at = parts_[p].rows
                             ? copy(parts_[p], begin + i, at, indices, values)
                             : keep(parts_[p], tiles[p].data() + i * parts_[p].width, at, indices, values);
            }
        }
    }

    bool has_values = false, finite = true;

  private:
    static constexpr int64_t at_once = 64;  // rows

    void check_rows(int64_t found) const {
        if (found != n_rows_) value_error("parts: one has ", found, " rows, ", n_rows_, " needed");
    }

    void widen(int64_t width) {
        width_ += width;
        if (width_ > std::numeric_limits<int32_t>::max())
            value_error("parts: have ", width_, " features, fewer than 2^31 needed");
    }

    static bool is_finite(float value) {
        constexpr uint32_t exponent = 0x7f800000;
        return (std::bit_cast<uint32_t>(value) & exponent) != exponent;
    }

    // Some rows as float32, row by row; whether all are finite.
    static bool convert(const Part& part, int64_t begin, int64_t n, float* tile) {
        int64_t first = 0;
        for (const auto& [any, width] : part.matrices) {
            std::visit(
                [&, width = width](const auto& cells) {
                    for (int64_t i = 0; i < n; ++i)
                        for (int64_t j = 0; j < width; ++j)
                            tile[i * part.width + first + j] = static_cast<float>(
                                cells.data[(begin + i) * cells.row_stride + j * cells.column_stride]);
                },
                any);
            first += width;
        }
        bool finite = true;
        for (int64_t k = 0; k < n * part.width; ++k) finite &= is_finite(tile[k]);
        return finite;
    }

    static int64_t nonzero(const float* row, int64_t width) {
        int64_t n = 0;
        for (int64_t j = 0; j < width; ++j) n += row[j] != 0;
        return n;
    }

    // Those that are not zero. Which are is not foretold: each is written, and only counts if it is one of
    // them.
    static int64_t keep(const Part& part, const float* row, int64_t at, int32_t* indices, float* values) {
        for (int64_t j = 0; j < part.width; ++j) {
            indices[at] = static_cast<int32_t>(part.offset + j);
            values[at] = row[j];
            at += row[j] != 0;
        }
        return at;
    }

    int64_t copy(const Part& part, int64_t row, int64_t at, int32_t* indices, float* values) {
        const auto [begin, size] = part.rows->row(row);
        for (int64_t k = begin; k < begin + size; ++k) {
            const int32_t index = part.rows->indices[static_cast<size_t>(k)];
            if (index < 0 || index >= part.width) [[unlikely]]
                bad_index(row, k - begin, index, part.width);
            const float value = part.rows->values == nullptr ? 1 : part.rows->values[k];
            finite &= is_finite(value);
            indices[at] = static_cast<int32_t>(part.offset + index);
            if (values != nullptr) values[at] = value;
            ++at;
        }
        return at;
    }

    int64_t n_rows_, width_ = 0, widest_ = 0;
    std::vector<Part> parts_;
};

nb::tuple csr_join(const nb::list& parts, int64_t n_rows) {
    Join join(n_rows);
    for (const nb::handle part : parts) {
        if (!nb::isinstance<nb::tuple>(part)) {
            join.add(nb::cast<Input>(part, false));
            continue;
        }
        const auto arrays = nb::cast<nb::tuple>(part);
        if (arrays.size() != 4) type_error("parts: tuples (indptr, indices, values, width) are needed");
        const Input values = arrays[2].is_none() ? Input() : nb::cast<Input>(arrays[2], false);
        join.add(Csr(nb::cast<Input>(arrays[0], false), nb::cast<Input>(arrays[1], false), values),
                 nb::cast<int64_t>(arrays[3]));
    }
    Owned<int64_t> indptr(static_cast<size_t>(n_rows) + 1);
    std::unique_ptr<int32_t[]> indices;
    std::unique_ptr<float[]> values;
    {
        nb::gil_scoped_release release;
        join.count(indptr.data.get());
        const auto room = static_cast<size_t>(indptr[indptr.size - 1]) + 1;
        indices = std::make_unique_for_overwrite<int32_t[]>(room);
        if (join.has_values) values = std::make_unique_for_overwrite<float[]>(room);
        join.fill(indptr.data.get(), indices.get(), values.get());
    }
    const auto nnz = static_cast<size_t>(indptr[indptr.size - 1]);
    nb::object found = nb::none();
    if (join.has_values) found = to_numpy(std::move(values), {nnz});
    return nb::make_tuple(to_numpy(std::move(indptr)), to_numpy(std::move(indices), {nnz}), found,
                          join.finite);
}

}  // namespace

void bind_joining(nb::module_& m) { m.def("csr_join", &csr_join, nb::arg("parts"), nb::arg("n_rows")); }

}  // namespace squall
