// Is this well-formed UTF-8? (Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above
// U+10FFFF.)
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace squall {

inline bool is_utf8(std::string_view text) {
    size_t i = 0;
    uint64_t eight = 0;
    for (; i + 8 <= text.size(); i += 8) {  // most texts are ASCII
        std::memcpy(&eight, text.data() + i, 8);
        if (eight & 0x8080808080808080) break;
    }
    const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
    const auto continues = [&](size_t at, unsigned low = 0x80, unsigned high = 0xBF) {
        return at < text.size() && byte(at) >= low && byte(at) <= high;
    };
    while (i < text.size()) {
        const unsigned lead = byte(i);
        if (lead < 0x80) {
            i += 1;
        } else if (lead >= 0xC2 && lead <= 0xDF) {
            if (!continues(i + 1)) return false;
            i += 2;
        } else if (lead >= 0xE0 && lead <= 0xEF) {
            if (!continues(i + 1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF) ||
                !continues(i + 2))
                return false;
            i += 3;
        } else if (lead >= 0xF0 && lead <= 0xF4) {
            if (!continues(i + 1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF) ||
                !continues(i + 2) || !continues(i + 3))
                return false;
            i += 4;
        } else {
            return false;
        }
    }
    return true;
}

}  // namespace squall
