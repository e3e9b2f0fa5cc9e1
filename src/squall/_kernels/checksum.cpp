// Checksums of stored objects: MurmurHash3, x64 128-bit variant (Austin Appleby's public-domain algorithm),
// written from its description. It finds damage, several times faster than a cryptographic hash would; it is
// no protection against someone who means harm.
#include <bit>
#include <cstdint>
#include <cstring>

#include "arrays.hpp"
#include "bindings.hpp"

namespace squall {
namespace {

constexpr uint64_t c1 = 0x87c37b91114253d5u, c2 = 0x4cf5ad432745937fu;

uint64_t scramble_low(uint64_t k) { return std::rotl(k * c1, 31) * c2; }
uint64_t scramble_high(uint64_t k) { return std::rotl(k * c2, 33) * c1; }

uint64_t avalanche(uint64_t h) {
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 33;
}

// Up to eight bytes, little-endian.
uint64_t word(const char* data, size_t size) {
    uint64_t k = 0;
    for (size_t i = size; i > 0; --i) k = k << 8 | static_cast<unsigned char>(data[i - 1]);
    return k;
}

uint64_t whole_word(const char* data) {
    if constexpr (std::endian::native != std::endian::little) return word(data, 8);
    uint64_t k;
    std::memcpy(&k, data, 8);
    return k;
}

std::pair<uint64_t, uint64_t> murmur3_128(std::string_view data) {
    uint64_t low = 0, high = 0;
    const size_t whole = data.size() & ~size_t{15};
    for (size_t i = 0; i < whole; i += 16) {
        low = (std::rotl(low ^ scramble_low(whole_word(data.data() + i)), 27) + high) * 5 + 0x52dce729u;
        high = (std::rotl(high ^ scramble_high(whole_word(data.data() + i + 8)), 31) + low) * 5 + 0x38495ab5u;
    }
    const char* const tail = data.data() + whole;
    const size_t rest = data.size() - whole;
    if (rest > 8) high ^= scramble_high(word(tail + 8, rest - 8));
    if (rest > 0) low ^= scramble_low(word(tail, std::min<size_t>(rest, 8)));

    low ^= data.size();
    high ^= data.size();
    low += high;
    high += low;
    low = avalanche(low);
    high = avalanche(high);
    low += high;
    return {low, high + low};
}

nb::tuple checksum(const Input& data) {
    const std::string_view bytes = byte_view(data, "data");
    std::pair<uint64_t, uint64_t> sum;
    {
        nb::gil_scoped_release release;
        sum = murmur3_128(bytes);
    }
    return nb::make_tuple(sum.first, sum.second);
}

}  // namespace

void bind_checksum(nb::module_& m) { m.def("checksum", &checksum, nb::arg("data").noconvert()); }

}  // namespace squall
