// The proximal step for l1 |w| + l2/2 w^2 (FOBOS; Duchi & Singer 2009), one at a time or many at once.
#pragma once

#include <algorithm>
#include <cmath>

#include "arrays.hpp"

namespace squall {

class Regularizer {
  public:
    Regularizer(double l1, double l2) : l1_(l1), l2_(l2), ratio_(l2 > 0 ? l1 / l2 : 0) {
        check_setting(l1, "l1");
        check_setting(l2, "l2");
    }

    bool active() const { return l1_ > 0 || l2_ > 0; }

    // sign(w) max(|w| - rate l1, 0) / (1 + rate l2). In double: 1 + rate l2 is often 1 in float.
    float step(float weight, float rate) const {
        const double r = rate;
        const double magnitude = std::max(std::fabs(static_cast<double>(weight)) - r * l1_, 0.0);
        return std::copysign(static_cast<float>(magnitude / (1.0 + r * l2_)), weight);
    }

    // `n` such steps in closed form. With x = rate l2 and a = 1 - (1 + x)^-n the magnitude becomes
    // max(m - a (m + l1/l2), 0): a step never takes a weight through 0, so one clip at the end is enough.
    float steps(float weight, float rate, int64_t n) const {
        if (n <= 0 || weight == 0 || rate == 0) return weight;
        if (n == 1) return step(weight, rate);
        const double r = rate, count = static_cast<double>(n), x = r * l2_;
        double magnitude = std::fabs(static_cast<double>(weight));
        if (x < 1e-16)
            magnitude -=
                count * r * l1_;  // the limit; even 2^31 steps of so small an x cannot be seen in float
        else
            magnitude -= one_minus_exp(count * log_one_plus(x)) * (magnitude + ratio_);
        return std::copysign(static_cast<float>(std::max(magnitude, 0.0)), weight);
    }

  private:
    // Both take the first terms of their series where these are exact far beyond float: the library's
    // functions would cost more than the rest of the step.
    static double log_one_plus(double x) {
        return x < 1e-4 ? x * (1 - x * (1.0 / 2 - x * (1.0 / 3))) : std::log1p(x);
    }
    static double one_minus_exp(double t) {
        return t < 1e-2 ? t * (1 - t * (1.0 / 2 - t * (1.0 / 6 - t * (1.0 / 24)))) : -std::expm1(-t);
    }

    double l1_, l2_, ratio_;
};

}  // namespace squall
