// Whole numbers in as few bits each as the largest may need, one after the other, lowest bit first.
#include <bit>
#include <cstring>

#include "arrays.hpp"
#include "bindings.hpp"

namespace squall {
namespace {

static_assert(std::endian::native == std::endian::little, "packed numbers are read as they lie in memory");

constexpr size_t tail = 8;  // bytes behind the last number, so that any may be read as a word of 64 bits

size_t packed_size(size_t n, int64_t bits) {
    if (bits < 1 || bits > 31) value_error("bits: is ", bits, ", a number from 1 to 31 needed");
    return (n * static_cast<size_t>(bits) + 7) / 8 + tail;
}

void pack_bits(const Input& numbers, int64_t bits, const Buffer& packed) {
    const auto from = vector<int32_t>(numbers, "numbers");
    const auto to = vector<uint8_t>(packed, "packed", packed_size(from.size(), bits));
    nb::gil_scoped_release release;
    uint32_t all = 0;  // a negative number has the highest bit
    uint64_t word = 0;
    int64_t filled = 0;
    uint8_t* out = to.data();
    for (const int32_t number : from) {
        const auto plain = static_cast<uint32_t>(number);
        all |= plain;
        word |= static_cast<uint64_t>(plain) << filled;
        filled += bits;
        if (filled >= 32) {
            const auto low = static_cast<uint32_t>(word);
            std::memcpy(out, &low, 4);
            out += 4;
            word >>= 32;
            filled -= 32;
        }
        if (all >> bits != 0) [[unlikely]]
            index_error("numbers: ", number, " has more than ", bits, " bits");
    }
    std::memcpy(out, &word, static_cast<size_t>(filled + 7) / 8);
    std::memset(to.data() + to.size() - tail, 0, tail);
}

void unpack_bits(const Input& packed, int64_t bits, const Buffer& numbers) {
    const auto to = vector<int32_t>(numbers, "numbers", numbers.size());
    const auto from = vector<uint8_t>(packed, "packed");
    if (from.size() != packed_size(to.size(), bits))
        value_error("packed: has ", from.size(), " bytes, ", packed_size(to.size(), bits), " needed");
    nb::gil_scoped_release release;
    const uint64_t mask = (uint64_t{1} << bits) - 1;
    const uint8_t* const bytes = from.data();
    uint64_t at = 0;
    for (int32_t& number : to) {
        uint64_t word;
        std::memcpy(&word, bytes + (at >> 3), 8);
        number = static_cast<int32_t>((word >> (at & 7)) & mask);
        at += static_cast<uint64_t>(bits);
    }
}

}  // namespace

void bind_packing(nb::module_& m) {
    m.def("packed_size", &packed_size, nb::arg("n"), nb::arg("bits"));
    m.def("pack_bits", &pack_bits, nb::arg("numbers").noconvert(), nb::arg("bits"),
          nb::arg("packed").noconvert());
    m.def("unpack_bits", &unpack_bits, nb::arg("packed").noconvert(), nb::arg("bits"),
          nb::arg("numbers").noconvert());
}

}  // namespace squall
