// Checksums of stored objects: MurmurHash3, x64 128-bit variant (Austin Appleby's public-domain algorithm),
// written from its description. It finds damage, several times faster than a cryptographic hash would; it is
// no protection against someone who means harm.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

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

// Of bytes that come in any pieces.
class Checksum {
  public:
    void update(std::string_view data) {
        size_ += data.size();
        if (n_rest_ > 0) {
            const size_t n = std::min(data.size(), sizeof rest_ - n_rest_);
            std::memcpy(rest_ + n_rest_, data.data(), n);
            n_rest_ += n;
            data.remove_prefix(n);
            if (n_rest_ < sizeof rest_) return;
            mix({rest_, sizeof rest_});
        }
        const size_t whole = data.size() & ~size_t{15};
        mix(data.substr(0, whole));
        n_rest_ = data.size() - whole;
        std::memcpy(rest_, data.data() + whole, n_rest_);
    }

    std::pair<uint64_t, uint64_t> digest() const {
        uint64_t low = low_, high = high_;
        if (n_rest_ > 8) high ^= scramble_high(word(rest_ + 8, n_rest_ - 8));
        if (n_rest_ > 0) low ^= scramble_low(word(rest_, std::min<size_t>(n_rest_, 8)));
        low ^= size_;
        high ^= size_;
        low += high;
        high += low;
        low = avalanche(low);
        high = avalanche(high);
        low += high;
        return {low, high + low};
    }

  private:
    void mix(std::string_view blocks) {
        uint64_t low = low_, high = high_;
        for (size_t i = 0; i < blocks.size(); i += 16) {
            low = (std::rotl(low ^ scramble_low(whole_word(blocks.data() + i)), 27) + high) * 5 + 0x52dce729u;
            high = (std::rotl(high ^ scramble_high(whole_word(blocks.data() + i + 8)), 31) + low) * 5 +
                   0x38495ab5u;
        }
        low_ = low;
        high_ = high;
    }

    uint64_t low_ = 0, high_ = 0, size_ = 0;
    char rest_[16] = {};  // of the last block, which is not whole yet
    size_t n_rest_ = 0;
};

class BoundChecksum {
  public:
    void update(const Input& data) {
        const std::string_view bytes = byte_view(data, "data");
        const nb::gil_scoped_release release;
        const std::lock_guard lock(mutex_);
        sum_.update(bytes);
    }

    nb::tuple digest() {
        const auto lock = locked();
        const auto [low, high] = sum_.digest();
        return nb::make_tuple(low, high);
    }

  private:
    std::unique_lock<std::mutex> locked() {
        const nb::gil_scoped_release release;
        return std::unique_lock(mutex_);
    }

    std::mutex mutex_;
    Checksum sum_;
};

}  // namespace

void bind_checksum(nb::module_& m) {
    nb::class_<BoundChecksum>(m, "Checksum")
        .def(nb::init<>())
        .def("update", &BoundChecksum::update, nb::arg("data").noconvert())
        .def("digest", &BoundChecksum::digest);
}

}  // namespace squall
