// The store's server: one call does what one frame about rows asks for, and writes the reply.
//
// Nothing is changed before all of a frame has been checked, and what is refused changes nothing.
#include <nanobind/stl/string.h>

#include <chrono>
#include <string>
#include <unordered_map>

#include "bindings.hpp"
#include "fence.hpp"
#include "rows.hpp"
#include "wire.hpp"

namespace squall {
namespace {

// Durations, counted in buckets that grow by a factor of 2^(1 / per_doubling) from 2^first nanoseconds on.
class Histogram {
  public:
    Histogram(int first, int per_doubling, int64_t n_buckets)
        : first_(first), per_doubling_(per_doubling), buckets_(static_cast<size_t>(checked(n_buckets))) {}

    void note(double seconds) {
        const double place = seconds > 0 ? (std::log2(1e9 * seconds) - first_) * per_doubling_ : 0.0;
        const auto last = static_cast<double>(buckets_.size() - 1);
        // A duration that is not a number counts as the longest.
        ++buckets_[place < last ? static_cast<size_t>(std::max(place, 0.0)) : buckets_.size() - 1];
    }

    nb::dict counts() const {
        nb::dict result;
        for (size_t i = 0; i < buckets_.size(); ++i)
            if (buckets_[i] != 0) result[nb::int_(i)] = buckets_[i];
        return result;
    }

  private:
    static int64_t checked(int64_t n) {
        if (n < 1 || n > 1 << 20) value_error("n_buckets: is ", n, ", a number in [1, 2^20] needed");
        return n;
    }

    int first_, per_doubling_;
    std::vector<int64_t> buckets_;
};

// Why a frame has not been served. All are negative; a served one gives the size of its reply.
enum Refusal : int64_t {
    not_of_rows = -1,     // not a whole frame of the protocol
    of_a_range = -2,      // what FrameServer leaves to others
    unknown_table = -3,   // add it
    too_large = -4,       // the reply would be
    bad_stamp = -5,       // numbers that no word holds
    bad_width = -6,       // of the values
    bad_arrays = -7,      // `problem` says more
    not_addable = -8,     // the optimiser derives the weights
    no_such_slot = -9,    // in this job
    stale_attempt = -10,  // there is a newer one
};

// What is reused from frame to frame, so that none allocates.
struct Scratch {
    std::vector<int64_t> rows;
    std::vector<float> values, weights;
};

// Rows to change, rows to read and values (n_pushed, dim), behind a frame's header.
class Arrays {
  public:
    Arrays(std::span<const uint8_t> data, const RequestHeader& header, int64_t dim)
        : rows_(data.data()),
          n_rows_(size_t{header.n_pushed} + header.n_pulled),
          n_values_(header.n_pushed * static_cast<size_t>(dim)),  // below 2^63: dim is 2^31 at most
          narrow_(header.flags & narrow_rows),
          half_(header.flags & half_values) {
        const size_t row_bytes = n_rows_ * (narrow_ ? 4 : 8);
        values_ = rows_ + std::min(row_bytes, data.size());
        const bool fits = row_bytes <= data.size() && n_values_ <= data.size() &&
                          row_bytes + n_values_ * (half_ ? 2 : 4) == data.size();
        if (!fits)
            value_error("frame: its ", data.size(), " bytes are not ", header.n_pushed, " + ",
                        header.n_pulled, " rows and ", n_values_, " values");
    }

    std::span<const int64_t> rows(Scratch& scratch, Matrix<float> table) const {
        scratch.rows.resize(n_rows_);
        int64_t* const rows = scratch.rows.data();
        if (narrow_)
            unpack<uint32_t>(rows_, n_rows_, rows, [](uint32_t row) { return int64_t{row}; });
        else
            unpack<int64_t>(rows_, n_rows_, rows, [](int64_t row) { return row; });
        check_rows(scratch.rows, table.rows);
        // On their way into the cache: they are about to be visited, and lie anywhere.
        constexpr size_t cached = 4096;  // lines that a second-level cache holds
        for (size_t i = 0; i < std::min(n_rows_, cached); ++i) __builtin_prefetch(table.row(rows[i]));
        return scratch.rows;
    }

    const float* values(Scratch& scratch) const {
        scratch.values.resize(n_values_);
        unpack_floats(values_, n_values_, half_, scratch.values.data());
        return scratch.values.data();
    }

  private:
    const uint8_t *rows_, *values_;
    size_t n_rows_, n_values_;
    bool narrow_, half_;
};

// A table at work in the server; alive as long as its memory, which it holds.
class ServedTable {
  public:
    ServedTable(const Buffer& table, const Buffer& step, int64_t dim, const Rule& rule, int64_t n_regularized,
                const Fence& fence, const Buffer& stop)
        : memory_(table),
          step_owner_(step),
          stop_owner_(stop),
          cells_(matrix<float>(table, "table")),
          step_(counter(step, "step")),
          stop_(counter(stop, "stop")),
          dim_(dim),
          n_regularized_(n_regularized),
          rule_(rule),
          fence_(fence) {
        with_table(table, dim, rule_, n_regularized, false, [](const auto&) {});
    }

    int64_t dim() const { return dim_; }
    int64_t rows() const { return cells_.rows; }
    bool stop() const { return std::atomic_ref<int64_t>(*stop_).load(std::memory_order_relaxed) != 0; }

    // Serves what follows a header's name; `out` has room for the weights. A Refusal, or whether anything
    // was changed.
    int64_t serve(const RequestHeader& header, std::span<const uint8_t> data, uint8_t* out) const {
        static thread_local Scratch scratch;
        const bool stamped = header.kind != pull, changing = stamped && !(header.flags & no_push);
        if (stamped) {
            for (const int64_t number : {header.attempt, header.sequence, header.minibatches})
                if (number <= -max_number || number >= max_number) return bad_stamp;
            if (header.n_pushed != 0 && header.dim != dim_) return bad_width;
            if (changing && header.kind == add && rule_.kind() == kind_ftrl) return not_addable;
        }
        const Arrays arrays(data, header, dim_);
        const auto rows = arrays.rows(scratch, cells_);
        const int64_t done = std::atomic_ref<int64_t>(*step_).load(std::memory_order_acquire);
        check_step(done, changing && header.kind != add);
        if (stamped) {
            const Fence::Admission admission = fence_.admit(header.slot, header.attempt);
            if (admission != Fence::admitted)
                return admission == Fence::no_slot ? no_such_slot : stale_attempt;
        }
        const bool change = changing && !fence_.is_repeat(header.slot, header.sequence);
        const float* const values = change ? arrays.values(scratch) : nullptr;
        scratch.weights.resize(header.n_pulled * static_cast<size_t>(dim_));
        // Before it is applied: if the process dies in between, the update is lost, but never doubled.
        if (change) fence_.set_last(header.slot, header.sequence);
        with_table(memory_, dim_, rule_, n_regularized_, false, [&](const auto& full) {
            const auto pushed = rows.first(header.n_pushed);
            int64_t now = done;
            if (change && header.kind == add) {
                // Up to date first: earlier steps shrink nothing of what is added now.
                for (const int64_t row : pushed) full.catch_up(row, done);
                add_rows(cells_, pushed, values, dim_);
            } else if (change) {
                update_rows(full, pushed, values, dim_, done);
                now = count_step(step_) + 1;
            }
            const auto pulled = rows.subspan(header.n_pushed);
            pull_rows(full, pulled, dim_, now, scratch.weights.data());
        });
        pack_floats(scratch.weights.data(), scratch.weights.size(), header.flags & half_reply, out);
        if (changing) fence_.count(header.slot, header.minibatches);
        return change;
    }

  private:
    static constexpr int64_t max_number = int64_t{1} << 62;  // far below what a word holds

    Buffer memory_, step_owner_, stop_owner_;
    Matrix<float> cells_;
    int64_t *step_, *stop_, dim_, n_regularized_;
    Rule rule_;
    Fence fence_;
};

// Serves frames about rows of the tables that it has been given; one at a time, by one thread.
class FrameServer {
  public:
    // `latencies`: a Histogram for each kind of request, from 1 on.
    explicit FrameServer(const nb::list& latencies) : latencies_(latencies) { release_reply(); }

    void add(const nb::bytes& name, const ServedTable& table) {
        tables_.insert_or_assign(std::string(name.c_str(), name.size()), table);
    }
    void forget(const nb::bytes& name) { tables_.erase(std::string(name.c_str(), name.size())); }

    // The reply is still being sent: the next one goes elsewhere.
    void release_reply() { reply_ = new_bytes(first_reply); }
    nb::object reply() const { return reply_; }
    const std::string& problem() const { return problem_; }

    // The first `size` bytes of `view`. The size of the reply, or why there is none; raises nothing.
    int64_t serve(nb::handle view, int64_t size) {
        const auto start = std::chrono::steady_clock::now();
        const Bytes bytes(view);
        if (size < 0 || static_cast<size_t>(size) > bytes.size())
            value_error("size: is ", size, ", at most ", bytes.size(), " needed");
        const std::span<const uint8_t> frame(bytes.data(), static_cast<size_t>(size));
        const int64_t result = serve(frame);
        if (result > 0) note(frame[4], std::chrono::steady_clock::now() - start);
        return result;
    }

  private:
    static constexpr size_t first_reply = size_t{64} << 10, kept_reply = size_t{1} << 20;

    static nb::object new_bytes(size_t size) {
        PyObject* const bytes = PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
        if (bytes == nullptr) throw nb::python_error();
        return nb::steal(bytes);
    }

    int64_t serve(std::span<const uint8_t> frame) {
        if (frame.size() < request_bytes || read_big<uint32_t>(frame.data()) != frame.size() - length_bytes)
            return not_of_rows;
        const auto header = RequestHeader::read(frame.data());
        const size_t name_end = request_bytes + header.name_bytes;
        if (header.kind < pull || header.kind > exchange || header.name_bytes > max_name ||
            name_end > frame.size())
            return not_of_rows;
        name_.assign(reinterpret_cast<const char*>(frame.data() + request_bytes), header.name_bytes);
        const auto known = tables_.find(name_);
        if (known == tables_.end()) return unknown_table;
        if (header.kind == pull_range) return of_a_range;
        const ServedTable& table = known->second;
        const bool half = header.flags & half_reply;
        const size_t width = static_cast<size_t>(table.dim()) * (half ? 2 : 4);
        if (header.n_pulled > max_payload / width) return too_large;
        const size_t reply_size = reply_bytes + header.n_pulled * width;
        // A reply that is there in time, whatever was asked for and does not follow.
        const size_t from = std::min(request_bytes + padded(header.name_bytes), frame.size());
        uint8_t* const reply = room(header.n_pulled <= frame.size() ? reply_size : reply_bytes);
        int64_t changed;
        try {
            changed = table.serve(header, frame.subspan(from), reply + reply_bytes);
        } catch (const nb::builtin_exception& error) {
            problem_ = error.what();
            return bad_arrays;
        }
        if (changed < 0) return changed;
        const int flags =
            (changed ? said_changed : 0) | (table.stop() ? said_stop : 0) | (half ? said_half : 0);
        ReplyHeader{weights_kind, static_cast<uint8_t>(flags), static_cast<uint32_t>(table.dim()),
                    table.rows()}
            .write(reply, reply_size);
        return static_cast<int64_t>(reply_size);
    }

    uint8_t* room(size_t size) {
        const auto held = static_cast<size_t>(PyByteArray_GET_SIZE(reply_.ptr()));
        if (size > held || (held > kept_reply && size <= kept_reply))
            reply_ = new_bytes(std::max(size, first_reply));
        return reinterpret_cast<uint8_t*>(PyByteArray_AS_STRING(reply_.ptr()));
    }

    void note(uint8_t kind, std::chrono::steady_clock::duration time) {
        if (kind <= latencies_.size())
            nb::cast<Histogram&>(latencies_[kind - size_t{1}])
                .note(std::chrono::duration<double>(time).count());
    }

    nb::list latencies_;
    std::unordered_map<std::string, ServedTable> tables_;
    nb::object reply_;
    std::string name_, problem_;
};

}  // namespace

void bind_serving(nb::module_& m) {
    // Plain numbers in a class of their own: an enumeration's members are slow to compare.
    const nb::object refusal = new_namespace(m, "Refusal");
    refusal.attr("NOT_OF_ROWS") = static_cast<int>(not_of_rows);
    refusal.attr("OF_A_RANGE") = static_cast<int>(of_a_range);
    refusal.attr("UNKNOWN_TABLE") = static_cast<int>(unknown_table);
    refusal.attr("TOO_LARGE") = static_cast<int>(too_large);
    refusal.attr("BAD_STAMP") = static_cast<int>(bad_stamp);
    refusal.attr("BAD_WIDTH") = static_cast<int>(bad_width);
    refusal.attr("BAD_ARRAYS") = static_cast<int>(bad_arrays);
    refusal.attr("NOT_ADDABLE") = static_cast<int>(not_addable);
    refusal.attr("NO_SUCH_SLOT") = static_cast<int>(no_such_slot);
    refusal.attr("STALE_ATTEMPT") = static_cast<int>(stale_attempt);
    nb::class_<Histogram>(m, "Histogram")
        .def(nb::init<int, int, int64_t>(), nb::arg("first"), nb::arg("per_doubling"), nb::arg("n_buckets"))
        .def("note", &Histogram::note, nb::arg("seconds"))
        .def("counts", &Histogram::counts);
    nb::class_<Fence>(m, "Fence")
        .def(nb::init<const Buffer&, const Buffer&, const Buffer&>(), nb::arg("attempts").noconvert(),
             nb::arg("sequences").noconvert(), nb::arg("progress").noconvert())
        .def(
            "admit",
            [](const Fence& fence, int64_t slot, int64_t attempt) -> int64_t {
                const Fence::Admission admission = fence.admit(slot, attempt);
                if (admission == Fence::admitted) return 0;
                return admission == Fence::no_slot ? no_such_slot : stale_attempt;
            },
            nb::arg("slot"), nb::arg("attempt"))
        .def("newest", &Fence::newest, nb::arg("slot"))
        .def("last", &Fence::last, nb::arg("slot"))
        .def("set_last", &Fence::set_last, nb::arg("slot"), nb::arg("sequence"))
        .def("is_repeat", &Fence::is_repeat, nb::arg("slot"), nb::arg("sequence"))
        .def("count", &Fence::count, nb::arg("slot"), nb::arg("minibatches"));
    nb::class_<ServedTable>(m, "ServedTable")
        .def(nb::init<const Buffer&, const Buffer&, int64_t, const Rule&, int64_t, const Fence&,
                      const Buffer&>(),
             nb::arg("table").noconvert(), nb::arg("step").noconvert(), nb::arg("dim"), nb::arg("rule"),
             nb::arg("n_regularized_rows"), nb::arg("fence"), nb::arg("stop").noconvert());
    nb::class_<FrameServer>(m, "FrameServer")
        .def(nb::init<const nb::list&>(), nb::arg("latencies"))
        .def("add", &FrameServer::add, nb::arg("name"), nb::arg("table"))
        .def("forget", &FrameServer::forget, nb::arg("name"))
        .def("release_reply", &FrameServer::release_reply)
        .def_prop_ro("reply", &FrameServer::reply)
        .def_prop_ro("problem", &FrameServer::problem)
        .def("serve", nb::overload_cast<nb::handle, int64_t>(&FrameServer::serve), nb::arg("view"),
             nb::arg("size"));
}

}  // namespace squall
