// Losses of a linear model. A loss is a struct with
//   bool valid(float label) const;                  is this label one it is defined for?
//   auto labels() const;                            which are, in words
//   static Term at(double margin, float label);     value and derivative in the margin
// `at` has no branch, so that a loop over many rows is done side by side.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace squall {

struct Term {
    double loss;
    float slope;
};

// exp(-x) for x >= 0, to 2 units in the last place; 0 beyond 87, where it is less than the smallest normal
// float. Cody & Waite's reduction to |r| <= log(2) / 2, then the Taylor series.
inline float exp_minus(float x) {
    constexpr float log2_e = 1.44269504f, high = 0.693359375f, low = -2.12194440e-4f;  // high + low = log(2)
    constexpr float to_integer = 12582912.0f;  // 1.5 * 2^23: adding it rounds, and leaves the integer below
    const float clipped = std::min(x, 88.0f);
    const float shifted = to_integer - clipped * log2_e;
    const float n = shifted - to_integer;
    const float r = (-clipped - n * high) - n * low;
    const float series =
        1 + r * (1 + r * (1.0f / 2 + r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720))))));
    const auto exponent = (std::bit_cast<int32_t>(shifted) << 23) + std::bit_cast<int32_t>(series);
    return clipped > 87.0f ? 0.0f : std::bit_cast<float>(exponent);
}

// log(1 + e) for e in [0, 1], as 2 atanh(e / (2 + e)): as exact for a tiny e as for any.
inline float log_one_plus(float e) {
    const float s = e / (2 + e), q = s * s;
    const float series =
        1 +
        q * (1.0f / 3 + q * (1.0f / 5 + q * (1.0f / 7 + q * (1.0f / 9 + q * (1.0f / 11 + q * (1.0f / 13))))));
    return 2 * s * series;
}

struct Logistic {
    static bool valid(float label) { return label == 0.0f || label == 1.0f; }
    static const char* labels() { return "0 or 1"; }

    // log(1 + exp(s)) with s = -z for label 1 and z for label 0, so neither branch cancels.
    static Term at(double margin, float label) {
        const double s = label != 0.0f ? -margin : margin;
        const float e = exp_minus(static_cast<float>(std::fabs(s)));
        const float probability = (s >= 0 ? 1.0f : e) / (1 + e);
        // A NaN margin fails the comparison, and the sum keeps it visible.
        return {static_cast<double>(log_one_plus(e)) + (s <= 0 ? 0.0 : s),
                label != 0.0f ? -probability : probability};
    }
};

struct Squared {
    static bool valid(float label) { return std::isfinite(label); }
    static const char* labels() { return "a finite number"; }

    static Term at(double margin, float label) {
        const double off = margin - static_cast<double>(label);
        return {0.5 * off * off, static_cast<float>(off)};
    }
};

// 1 / (1 + exp(-z)).
inline double sigmoid(double z) {
    const double e = std::exp(-std::fabs(z));  // without overflow: the exponent is never positive
    return (z >= 0 ? 1.0 : e) / (1.0 + e);
}

}  // namespace squall
