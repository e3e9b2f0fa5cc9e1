// One frame of the parameter store's wire protocol: rows and values as they were received, weights as they
// are sent. Nothing in a frame need be aligned, and nothing is changed before all of it has been checked.
#include <cstring>

#include "bindings.hpp"
#include "half.hpp"
#include "rows.hpp"

namespace squall {
namespace {

// How a frame writes numbers.
enum Format : int { wide_rows = 0, narrow_rows = 1, half_values = 2, half_reply = 4 };

template <class Narrow, class Wide, class Convert>
void unpack(const uint8_t* from, size_t n, Wide* to, Convert convert) {
    for (size_t i = 0; i < n; ++i) {
        Narrow value;
        std::memcpy(&value, from + i * sizeof value, sizeof value);
        to[i] = convert(value);
    }
}

// What is reused from frame to frame, so that none allocates.
struct Scratch {
    std::vector<int64_t> rows;
    std::vector<float> values, weights;
};

class Frame {
  public:
    Frame(const Input& frame, int64_t at, int64_t n_pushed, int64_t n_pulled, int64_t dim, int format)
        : data_(vector<uint8_t>(frame, "frame")), format_(format) {
        const auto size = static_cast<int64_t>(data_.size());
        // So that no product below overflows.
        constexpr int64_t most = int64_t{1} << 31;
        if (at < 0 || at > size || n_pushed < 0 || n_pulled < 0 || n_pushed > size || n_pulled > size ||
            dim < 1 || dim > most)
            value_error("frame: its counts do not fit its ", size, " bytes");
        n_rows_ = static_cast<size_t>(n_pushed + n_pulled);
        n_values_ = static_cast<size_t>(n_pushed * dim);
        rows_ = data_.data() + at;
        values_ = rows_ + n_rows_ * row_bytes();
        const size_t needed = static_cast<size_t>(at) + n_rows_ * row_bytes() + n_values_ * value_bytes();
        if (needed != data_.size())
            value_error("frame: has ", data_.size(), " bytes, ", needed, " are needed for its counts");
    }

    std::span<const int64_t> rows(Scratch& scratch) const {
        scratch.rows.resize(n_rows_);
        if (format_ & narrow_rows)
            unpack<uint32_t>(rows_, n_rows_, scratch.rows.data(), [](uint32_t row) { return int64_t{row}; });
        else
            unpack<int64_t>(rows_, n_rows_, scratch.rows.data(), [](int64_t row) { return row; });
        return scratch.rows;
    }

    const float* values(Scratch& scratch) const {
        scratch.values.resize(n_values_);
        if (format_ & half_values)
            unpack<uint16_t>(values_, n_values_, scratch.values.data(), half_to_float);
        else if (n_values_ != 0)
            std::memcpy(scratch.values.data(), values_, n_values_ * sizeof(float));
        return scratch.values.data();
    }

  private:
    size_t row_bytes() const { return format_ & narrow_rows ? 4 : 8; }
    size_t value_bytes() const { return format_ & half_values ? 2 : 4; }

    std::span<const uint8_t> data_;
    const uint8_t *rows_, *values_;
    size_t n_rows_, n_values_;
    int format_;
};

void pack(const std::vector<float>& weights, int format, uint8_t* out) {
    if (!(format & half_reply)) {
        if (!weights.empty()) std::memcpy(out, weights.data(), weights.size() * sizeof(float));
        return;
    }
    for (size_t i = 0; i < weights.size(); ++i) {
        const uint16_t half = float_to_half(weights[i]);
        std::memcpy(out + 2 * i, &half, sizeof half);
    }
}

enum Change : int { change_nothing = 0, change_step = 1, change_add = 2 };

void table_serve(const Buffer& table, const Buffer& step, int64_t dim, const Rule& rule,
                 int64_t n_regularized_rows, const Input& frame, int64_t at, int64_t n_pushed,
                 int64_t n_pulled, int format, int change, const Buffer& reply, int64_t reply_at) {
    static thread_local Scratch scratch;
    if (change < change_nothing || change > change_add)
        value_error("change: is ", change, ", 0, 1 or 2 needed");
    int64_t* const steps = counter(step, "step");
    const Frame message(frame, at, n_pushed, n_pulled, dim, format);
    const size_t n_weights = static_cast<size_t>(n_pulled) * static_cast<size_t>(dim);
    const auto out = vector<uint8_t>(reply, "reply", reply.size());
    if (reply_at < 0 ||
        static_cast<size_t>(reply_at) + n_weights * (format & half_reply ? 2 : 4) > out.size())
        value_error("reply: has no room for ", n_weights, " weights");
    with_table(table, dim, rule, n_regularized_rows, false, [&](const auto& full) {
        const auto rows = message.rows(scratch);
        check_rows(rows, full.rows());
        const auto pushed = rows.first(static_cast<size_t>(n_pushed));
        const int64_t done = std::atomic_ref<int64_t>(*steps).load(std::memory_order_acquire);
        check_step(done, change == change_step);
        if (change == change_step) {
            update_rows(full, pushed, message.values(scratch), dim, done);
            count_step(steps);
        } else if (change == change_add) {
            // Up to date first: earlier steps shrink nothing of what is added now.
            for (const int64_t row : pushed) full.catch_up(row, done);
            add_rows({full.row(0), full.rows(), full.stride()}, pushed, message.values(scratch), dim);
        }
        scratch.weights.resize(n_weights);
        pull_rows(full, rows.subspan(static_cast<size_t>(n_pushed)), dim, done + (change == change_step),
                  scratch.weights.data());
        pack(scratch.weights, format, out.data() + reply_at);
    });
}

template <class Narrow, class Wide, class Convert>
uint8_t* pack_as(std::span<const Wide> from, uint8_t* to, Convert convert) {
    for (const Wide value : from) {
        const Narrow narrow = convert(value);
        std::memcpy(to, &narrow, sizeof narrow);
        to += sizeof narrow;
    }
    return to;
}

// What is too large for float16 becomes its largest number, not infinity.
uint16_t clipped_half(float value) { return float_to_half(std::clamp(value, -65504.0f, 65504.0f)); }

nb::tuple rows_pack(const Buffer& frame, int64_t at, const Input& pushed, const Input& pulled,
                    const Input& values, bool half) {
    const auto out = vector<uint8_t>(frame, "frame", frame.size());
    std::span<const int64_t> rows[2];
    if (pushed.is_valid()) rows[0] = vector<int64_t>(pushed, "pushed");
    if (pulled.is_valid()) rows[1] = vector<int64_t>(pulled, "pulled");
    std::span<const float> numbers;
    if (values.is_valid()) {
        const auto array = matrix<float>(values, "values");
        numbers = {array.data, static_cast<size_t>(array.rows * array.columns)};
    }
    int64_t bits = 0;
    for (const auto part : rows)
        for (const int64_t row : part) bits |= row;
    const bool narrow = bits >= 0 && bits < int64_t{1} << 32;
    const size_t size =
        (rows[0].size() + rows[1].size()) * (narrow ? 4 : 8) + numbers.size() * (half ? 2 : 4);
    if (at < 4 || static_cast<size_t>(at) + size > out.size()) value_error("frame: has no room");
    uint8_t* to = out.data() + at;
    for (const auto part : rows)
        to = narrow ? pack_as<uint32_t>(part, to, [](int64_t row) { return static_cast<uint32_t>(row); })
                    : pack_as<int64_t>(part, to, [](int64_t row) { return row; });
    if (half)
        to = pack_as<uint16_t>(numbers, to, clipped_half);
    else
        to = pack_as<float>(numbers, to, [](float value) { return value; });
    return nb::make_tuple(to - out.data(), narrow);
}

nb::object weights_unpack(const Input& frame, int64_t at, int64_t rows, int64_t dim, bool half) {
    const auto data = vector<uint8_t>(frame, "frame");
    const auto size = static_cast<int64_t>(data.size());
    const int64_t width = half ? 2 : 4;
    if (at < 0 || at > size || rows < 0 || rows > size || dim < 1 || dim > int64_t{1} << 31 ||
        rows * dim * width != size - at)
        value_error("frame: its ", size - at, " bytes are not ", rows, " rows of ", dim, " weights");
    const auto n = static_cast<size_t>(rows * dim);
    Owned<float> weights(n);
    const uint8_t* const from = data.data() + at;
    if (half)
        unpack<uint16_t>(from, n, weights.data.get(), half_to_float);
    else if (n != 0)
        std::memcpy(weights.data.get(), from, n * sizeof(float));
    return to_numpy(std::move(weights.data), {static_cast<size_t>(rows), static_cast<size_t>(dim)});
}

}  // namespace

void bind_frames(nb::module_& m) {
    m.def("rows_pack", &rows_pack, nb::arg("frame").noconvert(), nb::arg("at"),
          nb::arg("pushed").noconvert().none(), nb::arg("pulled").noconvert().none(),
          nb::arg("values").noconvert().none(), nb::arg("half"));
    m.def("weights_unpack", &weights_unpack, nb::arg("frame").noconvert(), nb::arg("at"), nb::arg("rows"),
          nb::arg("dim"), nb::arg("half"));
    m.def("table_serve", &table_serve, nb::arg("table").noconvert(), nb::arg("step").noconvert(),
          nb::arg("dim"), nb::arg("rule"), nb::arg("n_regularized_rows"), nb::arg("frame").noconvert(),
          nb::arg("at"), nb::arg("n_pushed"), nb::arg("n_pulled"), nb::arg("format"), nb::arg("change"),
          nb::arg("reply").noconvert(), nb::arg("reply_at"));
}

}  // namespace squall
