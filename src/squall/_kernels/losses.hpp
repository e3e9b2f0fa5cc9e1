// Losses of a linear model. A loss is a struct with
//   static bool valid(float label);                 is this label one it is defined for?
//   static constexpr const char* labels;            which are, in words
//   static Term at(double margin, float label);     value and derivative in the margin
#pragma once

#include <cmath>

namespace squall {

struct Term {
    double loss, slope;
};

// 1 / (1 + exp(-z)) without overflow: the exponent is never positive.
inline double sigmoid(double z) {
    const double e = std::exp(-std::fabs(z));
    return (z >= 0 ? 1.0 : e) / (1.0 + e);
}

struct Logistic {
    static bool valid(float label) { return label == 0.0f || label == 1.0f; }
    static constexpr const char* labels = "0 or 1";

    // log(1 + exp(s)) with s = -z for label 1 and z for label 0, so neither branch cancels.
    static Term at(double margin, float label) {
        const double s = label != 0.0f ? -margin : margin;
        const double e = std::exp(-std::fabs(s));
        const double probability = (s >= 0 ? 1.0 : e) / (1.0 + e);
        const double loss = std::log1p(e) + (s > 0 ? s : 0.0);
        // A NaN margin fails every comparison; the sum keeps it visible in the loss.
        return {std::isnan(s) ? s : loss, label != 0.0f ? -probability : probability};
    }
};

}  // namespace squall
