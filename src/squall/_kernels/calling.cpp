// The store's client: requests about rows are packed for one or several shards, sent to all, and their
// replies received and merged, without the interpreter between two of these.
#include <nanobind/stl/vector.h>
#include <sys/socket.h>

#include <cerrno>
#include <stdexcept>

#include "bindings.hpp"
#include "wire.hpp"

namespace squall {
namespace {

// What became of a frame; a positive number is an errno.
enum Status : int {
    done = 0,
    not_tried = -1,
    closed = -2,  // by the server
    send_timed_out = -3,
    receive_timed_out = -4,
    bad_size = -5,        // a reply claims too much or nothing
    trailing_bytes = -6,  // after a reply
};

#ifdef MSG_NOSIGNAL
constexpr int send_flags = MSG_NOSIGNAL;
#else
constexpr int send_flags = 0;  // Python ignores SIGPIPE
#endif

// After a signal: its handlers run, and may raise.
void handle_signals() {
    nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

bool is_timeout(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

// On a blocking socket, whose own time limits count.
int send_all(int fd, const uint8_t* data, size_t size) {
    while (size != 0) {
        const ssize_t n = ::send(fd, data, size, send_flags);
        if (n >= 0) {
            data += n;
            size -= static_cast<size_t>(n);
        } else if (errno == EINTR) {
            handle_signals();
        } else {
            return is_timeout(errno) ? send_timed_out : errno;
        }
    }
    return done;
}

// One whole frame; the buffer grows to what its checked length says.
int receive_frame(int fd, std::vector<uint8_t>& buffer, size_t& size) {
    size_t have = 0, whole = 0;
    for (;;) {
        const ssize_t n = ::recv(fd, buffer.data() + have, buffer.size() - have, 0);
        if (n == 0) return closed;
        if (n < 0) {
            const int error = errno;
            if (error != EINTR) return is_timeout(error) ? receive_timed_out : error;
            handle_signals();
            continue;
        }
        have += static_cast<size_t>(n);
        if (whole == 0 && have >= length_bytes) {
            const size_t body = read_big<uint32_t>(buffer.data());
            if (body == 0 || body > max_frame) return bad_size;
            whole = length_bytes + body;
            if (buffer.size() < whole) buffer.resize(whole);
        }
        if (whole != 0 && have > whole) return trailing_bytes;
        if (whole != 0 && have == whole) break;
    }
    size = whole;
    return done;
}

int64_t as_int64(nb::handle number) {
    const long long value = PyLong_AsLongLong(number.ptr());
    if (value == -1 && PyErr_Occurred()) throw nb::python_error();
    return value;
}

// Where the rows of a table of several shards lie: stretches of `stretch` rows, or dealt out in turn if that
// is 0. The division is by a reciprocal, which is off by one at most.
class Placement {
  public:
    Placement(int64_t n_shards, int64_t rows, int64_t stretch)
        : n_shards_(n_shards),
          rows_(rows),
          divisor_(stretch > 0 ? stretch : n_shards),
          reciprocal_(1.0 / static_cast<double>(divisor_)),
          dealt_(stretch <= 0) {
        constexpr int64_t most = int64_t{1} << 52;  // numbers that a double holds
        if (rows < 1 || rows > most || stretch < 0 || stretch > most) value_error("rows: a table of ", rows);
        if (!dealt_ && (rows - 1) / stretch >= n_shards)
            value_error("stretch: ", stretch, " rows to each of ", n_shards, " shards are less than ", rows);
    }

    struct Place {
        int64_t shard, local;
    };

    Place of(int64_t row) const {
        if (row < 0 || row >= rows_) [[unlikely]]
            index_error("rows: ", row, " is not in [0, ", rows_, ")");
        auto quotient = static_cast<int64_t>(static_cast<double>(row) * reciprocal_);
        int64_t rest = row - quotient * divisor_;
        if (rest < 0) {
            --quotient;
            rest += divisor_;
        } else if (rest >= divisor_) {
            ++quotient;
            rest -= divisor_;
        }
        return dealt_ ? Place{rest, quotient} : Place{quotient, rest};
    }

  private:
    int64_t n_shards_, rows_, divisor_;
    double reciprocal_;
    bool dealt_;
};

// One shard's part of a request, and its reply.
struct Part {
    std::vector<uint8_t> request, reply;
    size_t request_size = 0, reply_size = 0;
    std::vector<size_t> positions;  // of its rows among those pulled, if there are several shards
    size_t n_pushed = 0, n_pulled = 0;
    uint64_t bits = 0;  // of all row numbers together
    int status = not_tried;
    bool has_weights = false;
    ReplyHeader header{};

    bool narrow() const { return bits < uint64_t{1} << 32; }

    void start() {
        n_pushed = n_pulled = 0;
        bits = 0;
        status = not_tried;
        has_weights = false;
        positions.clear();
    }

    // The header is written; returns where the rows go.
    uint8_t* lay_out(RequestHeader header, const nb::bytes& name, size_t dim) {
        header.flags = static_cast<uint8_t>(header.flags | (narrow() ? narrow_rows : 0));
        header.n_pushed = static_cast<uint32_t>(n_pushed);
        header.n_pulled = static_cast<uint32_t>(n_pulled);
        const size_t at = request_bytes + padded(name.size());
        request_size = at + (n_pushed + n_pulled) * row_bytes() + n_pushed * dim * value_bytes(header.flags);
        if (request_size - length_bytes > max_frame)
            value_error("a request of ", request_size, " bytes is too large: send at most ", max_frame,
                        " at once");
        if (request.size() < request_size || request.size() > std::max(request_size, kept)) {
            std::vector<uint8_t>(std::max(request_size + request_size / 2, smallest)).swap(request);
        }
        header.write(request.data(), request_size);
        std::memset(request.data() + request_bytes, 0, at - request_bytes);
        std::memcpy(request.data() + request_bytes, name.c_str(), name.size());
        return request.data() + at;
    }

    size_t row_bytes() const { return narrow() ? 4 : 8; }
    static size_t value_bytes(int flags) { return flags & half_values ? 2 : 4; }

    void put_row(uint8_t* to, size_t i, int64_t row) const {
        if (narrow())
            put(to, i, static_cast<uint32_t>(row));
        else
            put(to, i, row);
    }

    void talk_to(int fd, bool sending) {
        if (sending) {
            status = send_all(fd, request.data(), request_size);
        } else if (status == done) {
            constexpr size_t usual = size_t{64} << 10;
            if (reply.size() < usual || reply.size() > kept) std::vector<uint8_t>(usual).swap(reply);
            status = receive_frame(fd, reply, reply_size);
            if (status == done) look_at_reply();
        }
    }

    // Whether the reply is the weights asked for.
    void look_at_reply() {
        has_weights = false;
        if (reply_size < reply_bytes || reply[length_bytes] != weights_kind) return;
        header = ReplyHeader::read(reply.data());
        const size_t width = header.flags & said_half ? 2 : 4, payload = reply_size - reply_bytes;
        has_weights = header.dim != 0 && payload == n_pulled * header.dim * width;
    }

  private:
    static constexpr size_t smallest = 4096, kept = size_t{1} << 20;
};

class FrameClient {
  public:
    explicit FrameClient(int64_t n_shards) {
        if (n_shards < 1 || n_shards > 1 << 16) value_error("n_shards: is ", n_shards, ", 1 to 65536 needed");
        parts_.resize(static_cast<size_t>(n_shards));
    }

    // `table_rows` and `stretch` as in Placement; of no use with one shard.
    void pack(int kind, int flags, const nb::bytes& name, nb::handle slot, nb::handle attempt,
              nb::handle sequence, nb::handle minibatches, const Input& pushed, const Input& values,
              const Input& pulled, int64_t table_rows, int64_t stretch) {
        check_free();
        if (name.size() > max_name)
            value_error("name: has ", name.size(), " bytes, at most ", max_name, " needed");
        RequestHeader header{};
        header.kind = static_cast<uint8_t>(kind);
        header.flags = static_cast<uint8_t>(flags & (half_values | half_reply | no_push));
        header.name_bytes = static_cast<uint16_t>(name.size());
        const int64_t number = as_int64(slot);
        header.slot = static_cast<int32_t>(number);
        if (header.slot != number) value_error("slot: ", number, " is too large");
        header.attempt = as_int64(attempt);
        header.sequence = as_int64(sequence);
        header.minibatches = as_int64(minibatches);
        std::span<const int64_t> changed;
        Matrix<const float> numbers{nullptr, 0, 0};
        wanted_ = {};
        if (pushed.is_valid()) {
            changed = vector<int64_t>(pushed, "rows");
            numbers = matrix<float>(values, "values");
            if (numbers.rows != static_cast<int64_t>(changed.size()))
                value_error("values: has ", numbers.rows, " rows, ", changed.size(), " needed");
            if (numbers.columns > int64_t{1} << 31) value_error("values: has too many columns");
            header.dim = static_cast<uint32_t>(numbers.columns);
        }
        if (pulled.is_valid()) wanted_ = vector<int64_t>(pulled, "rows").size();
        const auto wanted = pulled.is_valid() ? vector<int64_t>(pulled, "rows") : std::span<const int64_t>();
        if (changed.size() > max_frame || wanted.size() > max_frame)
            value_error("rows: a request is too large");
        for (Part& part : parts_) part.start();
        if (parts_.size() == 1)
            pack_whole(parts_[0], header, name, changed, numbers, wanted);
        else
            pack_parts(Placement(static_cast<int64_t>(parts_.size()), table_rows, stretch), header, name,
                       changed, numbers, wanted);
    }

    // To each shard by its socket, which is -1 where somebody else talks to it: all are sent to before the
    // first reply is awaited. What the replies said, or -1 if not all are there and hold weights.
    int talk(const std::vector<int>& fds) {
        check_free();
        if (fds.size() != parts_.size()) value_error("fds: has ", fds.size(), ", ", parts_.size(), " needed");
        {
            const Talk talk(talking_);
            nb::gil_scoped_release release;
            for (const bool sending : {true, false})
                for (size_t i = 0; i < fds.size(); ++i)
                    if (fds[i] >= 0) parts_[i].talk_to(fds[i], sending);
        }
        return said();
    }

    int status(size_t shard) const { return part(shard).status; }
    nb::bytes request(size_t shard) const {
        return nb::bytes(part(shard).request.data(), part(shard).request_size);
    }
    nb::bytes reply(size_t shard) const {
        if (part(shard).status != done) value_error("shard: ", shard, " has not replied");
        return nb::bytes(part(shard).reply.data(), part(shard).reply_size);
    }

    // A reply that somebody else has received; whether it is the weights asked for.
    bool accept(size_t shard, nb::handle reply) {
        check_free();
        Part& own = parts_[checked(shard)];
        const Bytes bytes(reply);
        if (own.reply.size() < bytes.size()) own.reply.resize(bytes.size());
        std::copy_n(bytes.data(), bytes.size(), own.reply.data());
        own.reply_size = bytes.size();
        own.status = done;
        own.look_at_reply();
        return own.has_weights;
    }

    int said() const {
        int flags = 0;
        for (const Part& part : parts_) {
            if (part.status != done || !part.has_weights || part.header.dim != parts_[0].header.dim)
                return -1;
            flags |= part.header.flags;
        }
        return flags & (said_changed | said_stop);
    }

    // Of the rows asked for, in their order.
    nb::object weights() const {
        if (said() < 0) value_error("reply: there are no weights");
        const size_t dim = parts_[0].header.dim;
        Owned<float> result(wanted_ * dim);
        float* const out = result.data.get();
        if (parts_.size() == 1) {
            const Part& part = parts_[0];
            unpack_floats(part.reply.data() + reply_bytes, wanted_ * dim, part.header.flags & said_half, out);
        } else {
            for (const Part& part : parts_) merge(part, dim, out);
        }
        return to_numpy(std::move(result.data), {wanted_, dim});
    }

  private:
    // While the interpreter is released, other threads must leave the buffers alone.
    struct Talk {
        explicit Talk(bool& talking) : talking_(talking) { talking_ = true; }
        ~Talk() { talking_ = false; }
        Talk(const Talk&) = delete;
        Talk& operator=(const Talk&) = delete;
        bool& talking_;
    };

    void check_free() const {
        if (talking_) throw std::runtime_error("a request is under way");
    }

    size_t checked(size_t shard) const {
        if (shard >= parts_.size()) index_error("shard: ", shard, " is not in [0, ", parts_.size(), ")");
        return shard;
    }
    const Part& part(size_t shard) const { return parts_[checked(shard)]; }

    static void put_values(uint8_t* to, const float* from, size_t n, bool half) {
        if (!half) {
            if (n != 0) std::memcpy(to, from, n * sizeof(float));
            return;
        }
        for (size_t i = 0; i < n; ++i) put(to, i, clipped_half(from[i]));
    }

    static uint64_t bits_of(std::span<const int64_t> rows) {
        uint64_t bits = 0;
        for (const int64_t row : rows) bits |= static_cast<uint64_t>(row);
        return bits;
    }

    static void pack_whole(Part& part, const RequestHeader& header, const nb::bytes& name,
                           std::span<const int64_t> changed, Matrix<const float> values,
                           std::span<const int64_t> wanted) {
        part.n_pushed = changed.size();
        part.n_pulled = wanted.size();
        part.bits = bits_of(changed) | bits_of(wanted);
        const auto dim = static_cast<size_t>(values.columns);
        uint8_t* to = part.lay_out(header, name, dim);
        for (const auto rows : {changed, wanted}) {
            if (part.narrow())
                for (size_t i = 0; i < rows.size(); ++i) put(to, i, static_cast<uint32_t>(rows[i]));
            else if (!rows.empty())
                std::memcpy(to, rows.data(), rows.size_bytes());
            to += rows.size() * part.row_bytes();
        }
        put_values(to, values.data, changed.size() * dim, header.flags & half_values);
    }

    void pack_parts(const Placement& placement, const RequestHeader& header, const nb::bytes& name,
                    std::span<const int64_t> changed, Matrix<const float> values,
                    std::span<const int64_t> wanted) {
        places_.resize(changed.size() + wanted.size());
        for (size_t i = 0; i < places_.size(); ++i) {
            const bool pushing = i < changed.size();
            const auto place = places_[i] = placement.of(pushing ? changed[i] : wanted[i - changed.size()]);
            Part& part = parts_[static_cast<size_t>(place.shard)];
            ++(pushing ? part.n_pushed : part.n_pulled);
            part.bits |= static_cast<uint64_t>(place.local);
            if (!pushing) part.positions.push_back(i - changed.size());
        }
        const auto dim = static_cast<size_t>(values.columns);
        const bool half = header.flags & half_values;
        targets_.clear();
        for (Part& part : parts_) {
            uint8_t* const rows = part.lay_out(header, name, dim);
            targets_.push_back({rows, rows + (part.n_pushed + part.n_pulled) * part.row_bytes()});
        }
        for (size_t i = 0; i < places_.size(); ++i) {
            const auto shard = static_cast<size_t>(places_[i].shard);
            Target& target = targets_[shard];
            parts_[shard].put_row(target.rows, 0, places_[i].local);
            target.rows += parts_[shard].row_bytes();
            if (i >= changed.size()) continue;
            put_values(target.values, values.row(static_cast<int64_t>(i)), dim, half);
            target.values += dim * (half ? 2 : 4);
        }
    }

    static void merge(const Part& part, size_t dim, float* out) {
        const bool half = part.header.flags & said_half;
        const uint8_t* from = part.reply.data() + reply_bytes;
        for (const size_t at : part.positions) {
            unpack_floats(from, dim, half, out + at * dim);
            from += dim * (half ? 2 : 4);
        }
    }

    struct Target {
        uint8_t *rows, *values;
    };

    std::vector<Part> parts_;
    std::vector<Placement::Place> places_;
    std::vector<Target> targets_;
    size_t wanted_ = 0;
    bool talking_ = false;
};

}  // namespace

void bind_calling(nb::module_& m) {
    const nb::object status = new_namespace(m, "Status");
    status.attr("DONE") = static_cast<int>(done);
    status.attr("NOT_TRIED") = static_cast<int>(not_tried);
    status.attr("CLOSED") = static_cast<int>(closed);
    status.attr("SEND_TIMED_OUT") = static_cast<int>(send_timed_out);
    status.attr("RECEIVE_TIMED_OUT") = static_cast<int>(receive_timed_out);
    status.attr("BAD_SIZE") = static_cast<int>(bad_size);
    status.attr("TRAILING_BYTES") = static_cast<int>(trailing_bytes);
    nb::class_<FrameClient>(m, "FrameClient")
        .def(nb::init<int64_t>(), nb::arg("n_shards"))
        .def("pack", &FrameClient::pack, nb::arg("kind"), nb::arg("flags"), nb::arg("name"), nb::arg("slot"),
             nb::arg("attempt"), nb::arg("sequence"), nb::arg("minibatches"),
             nb::arg("pushed").noconvert().none(), nb::arg("values").noconvert().none(),
             nb::arg("pulled").noconvert().none(), nb::arg("table_rows"), nb::arg("stretch"))
        .def("talk", &FrameClient::talk, nb::arg("fds"))
        .def("status", &FrameClient::status, nb::arg("shard"))
        .def("request", &FrameClient::request, nb::arg("shard"))
        .def("reply", &FrameClient::reply, nb::arg("shard"))
        .def("accept", &FrameClient::accept, nb::arg("shard"), nb::arg("reply"))
        .def("said", &FrameClient::said)
        .def("weights", &FrameClient::weights);
}

}  // namespace squall
