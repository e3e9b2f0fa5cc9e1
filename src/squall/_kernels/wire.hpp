// The store's frames about rows, byte by byte; src/squall/store/wire.py says what the fields mean.
#pragma once

#include <cstring>

#include "arrays.hpp"
#include "half.hpp"

namespace squall {

enum Kind : int { pull = 1, pull_range = 2, push = 3, add = 4, exchange = 5 };

// Flags of a request, and of a reply.
enum Format : int { narrow_rows = 1, half_values = 2, half_reply = 4, no_push = 8 };
enum Said : int { said_changed = 1, said_stop = 2, said_half = 4 };

constexpr size_t length_bytes = 4, request_bytes = 48, reply_bytes = 20;
constexpr size_t max_name = 1600, max_frame = size_t{64} << 20, max_payload = max_frame - 4096;
constexpr uint8_t messagepack = 0x80, weights_kind = 9;

// Big-endian, as the headers are.
template <class T>
T read_big(const uint8_t* from) {
    std::make_unsigned_t<T> value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value = static_cast<decltype(value)>(value << 8 | from[i]);
    return static_cast<T>(value);
}

template <class T>
void write_big(uint8_t* to, T number) {
    auto value = static_cast<std::make_unsigned_t<T>>(number);
    for (size_t i = sizeof(T); i-- > 0; value = static_cast<decltype(value)>(value >> 8))
        to[i] = static_cast<uint8_t>(value);
}

inline size_t padded(size_t n_bytes) { return (n_bytes + 3) / 4 * 4; }

struct RequestHeader {
    uint8_t kind, flags;
    uint16_t name_bytes;
    int32_t slot;
    int64_t attempt, sequence, minibatches;
    uint32_t dim, n_pushed, n_pulled;

    static RequestHeader read(const uint8_t* from) {
        return {from[4],
                from[5],
                read_big<uint16_t>(from + 6),
                read_big<int32_t>(from + 8),
                read_big<int64_t>(from + 12),
                read_big<int64_t>(from + 20),
                read_big<int64_t>(from + 28),
                read_big<uint32_t>(from + 36),
                read_big<uint32_t>(from + 40),
                read_big<uint32_t>(from + 44)};
    }

    void write(uint8_t* to, size_t frame_bytes) const {
        write_big(to, static_cast<uint32_t>(frame_bytes - length_bytes));
        to[4] = kind;
        to[5] = flags;
        write_big(to + 6, name_bytes);
        write_big(to + 8, slot);
        write_big(to + 12, attempt);
        write_big(to + 20, sequence);
        write_big(to + 28, minibatches);
        write_big(to + 36, dim);
        write_big(to + 40, n_pushed);
        write_big(to + 44, n_pulled);
    }
};

struct ReplyHeader {
    uint8_t kind, flags;
    uint32_t dim;
    int64_t table_rows;

    static ReplyHeader read(const uint8_t* from) {
        return {from[4], from[5], read_big<uint32_t>(from + 8), read_big<int64_t>(from + 12)};
    }

    void write(uint8_t* to, size_t frame_bytes) const {
        write_big(to, static_cast<uint32_t>(frame_bytes - length_bytes));
        to[4] = kind;
        to[5] = flags;
        write_big(to + 6, uint16_t{0});
        write_big(to + 8, dim);
        write_big(to + 12, table_rows);
    }
};

// Arrays in a frame are little-endian, as the processors are, and need not be aligned.
template <class Narrow, class Wide, class Convert>
void unpack(const uint8_t* from, size_t n, Wide* to, Convert convert) {
    for (size_t i = 0; i < n; ++i) {
        Narrow value;
        std::memcpy(&value, from + i * sizeof value, sizeof value);
        to[i] = convert(value);
    }
}

template <class Narrow>
void put(uint8_t* to, size_t i, Narrow value) {
    std::memcpy(to + i * sizeof value, &value, sizeof value);
}

inline void unpack_floats(const uint8_t* from, size_t n, bool half, float* to) {
    if (half)
        unpack<uint16_t>(from, n, to, half_to_float);
    else if (n != 0)
        std::memcpy(to, from, n * sizeof(float));
}

inline void pack_floats(const float* from, size_t n, bool half, uint8_t* to) {
    if (!half) {
        if (n != 0) std::memcpy(to, from, n * sizeof(float));
        return;
    }
    for (size_t i = 0; i < n; ++i) put(to, i, float_to_half(from[i]));
}

// What is too large for float16 becomes its largest number, not infinity.
inline uint16_t clipped_half(float value) { return float_to_half(std::clamp(value, -65504.0f, 65504.0f)); }

// Bytes of an object, without a copy; read-only unless asked for.
class Bytes {
  public:
    explicit Bytes(nb::handle object, int flags = PyBUF_SIMPLE) {
        if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) throw nb::python_error();
    }
    ~Bytes() { PyBuffer_Release(&buffer_); }
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;

    uint8_t* data() const { return static_cast<uint8_t*>(buffer_.buf); }
    size_t size() const { return static_cast<size_t>(buffer_.len); }

  private:
    Py_buffer buffer_;
};

}  // namespace squall
