// Feature hashing: strings to slots, the same on every machine.
#include <limits>

#include "arrays.hpp"
#include "bindings.hpp"
#include "murmur3.hpp"

namespace squall {
namespace {

uint32_t check_seed(int64_t seed) {
    if (seed < 0 || seed > std::numeric_limits<uint32_t>::max())
        value_error("seed: is ", seed, ", a number in [0, 2^32) needed");
    return static_cast<uint32_t>(seed);
}

uint32_t hash_bytes(const nb::bytes& data, int64_t seed) {
    return murmur3_32({data.c_str(), data.size()}, check_seed(seed));
}

nb::object hash_slots(const nb::bytes& prefix, const Input& offsets, const Input& data, int64_t n_slots,
                      int64_t seed) {
    const auto ends = vector<int64_t>(offsets, "offsets");
    const auto bytes = byte_view(data, "data");
    const uint32_t checked_seed = check_seed(seed);
    if (ends.empty()) value_error("offsets: is empty, strings + 1 elements needed");
    if (n_slots < 1 || n_slots > std::numeric_limits<int32_t>::max())
        value_error("n_slots: is ", n_slots, ", a number in [1, 2^31) needed");
    std::string key(prefix.c_str(), prefix.size());
    const size_t prefix_size = key.size();
    Owned<int32_t> slots(ends.size() - 1);
    {
        nb::gil_scoped_release release;
        for (size_t i = 0; i + 1 < ends.size(); ++i) {
            const int64_t begin = ends[i], end = ends[i + 1];
            if (begin < 0 || end < begin || end > static_cast<int64_t>(bytes.size()))
                value_error("offsets: string ", i, " spans [", begin, ", ", end, "), not a range within ",
                            bytes.size(), " bytes");
            key.resize(prefix_size);
            key.append(bytes.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
            slots[i] = static_cast<int32_t>(murmur3_32(key, checked_seed) % static_cast<uint32_t>(n_slots));
        }
    }
    return to_numpy(std::move(slots));
}

}  // namespace

void bind_hashing(nb::module_& m) {
    m.def("murmur3_32", &hash_bytes, nb::arg("data"), nb::arg("seed"));
    m.def("hash_slots", &hash_slots, nb::arg("prefix"), nb::arg("offsets").noconvert(),
          nb::arg("data").noconvert(), nb::arg("n_slots"), nb::arg("seed"));
}

}  // namespace squall
