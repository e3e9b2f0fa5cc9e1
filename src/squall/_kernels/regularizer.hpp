// The proximal step for l1 |w| + l2/2 w^2 (FOBOS; Duchi & Singer 2009), one at a time or many at once.
#pragma once

#include <algorithm>
#include <cmath>

#include "arrays.hpp"
#include "pace.hpp"

namespace squall {

class Regularizer {
  public:
    Regularizer(double l1, double l2)
        : l1_(l1),
          l2_(l2),
          ratio_(l2 > 0 ? l1 / l2 : 0),
          narrow_l1_(static_cast<float>(l1)),
          narrow_l2_(static_cast<float>(l2)) {}

    bool active() const { return l1_ > 0 || l2_ > 0; }
    double l1() const { return l1_; }
    double l2() const { return l2_; }

    // sign(w) max(|w| - rate l1, 0) / (1 + rate l2). In double: 1 + rate l2 is often 1 in float.
    float step(float weight, float rate) const {
        const double r = rate;
        const double magnitude = std::max(std::fabs(static_cast<double>(weight)) - r * l1_, 0.0);
        return std::copysign(static_cast<float>(magnitude / (1.0 + r * l2_)), weight);
    }

    // Sums over the steps to take at once, of the pace and its powers.
    struct Gap {
        float first, second, third;

        Gap(float first_, float second_, float third_) : first(first_), second(second_), third(third_) {}
        explicit Gap(const Pace::Sums& sums)
            : first(static_cast<float>(sums.first)),
              second(static_cast<float>(sums.second)),
              third(static_cast<float>(sums.third)) {}
    };

    // All steps of a gap in closed form. A step of rate r turns m + l1/l2 into (m + l1/l2)/(1 + x), x = r l2,
    // and never takes a weight through 0, so one clip at the end is enough: with t the sum of log(1 + x) and
    // a = 1 - exp(-t) the magnitude becomes max(m - a (m + l1/l2), 0).
    //
    // Here by series, in float, without branches, so that many weights are done side by side; good enough
    // where `doubt` becomes less than 1.
    [[gnu::always_inline]] float few_steps(float weight, float rate, Gap gap, float& doubt) const {
        const float x = rate * narrow_l2_;
        const float u = gap.first - x * (gap.second * (1.0f / 2) - x * (gap.third * (1.0f / 3)));
        const float t = x * u;
        const float c =
            1 - t * (1.0f / 2) *
                    (1 - t * (1.0f / 3) *
                             (1 - t * (1.0f / 4) *
                                      (1 - t * (1.0f / 5) * (1 - t * (1.0f / 6) * (1 - t * (1.0f / 7))))));
        const float magnitude = std::fabs(weight);
        const float left = magnitude - (t * c * magnitude + rate * narrow_l1_ * (u * c));
        doubt = std::max(x / 0.01f, t / 0.4f);
        return std::copysign(std::max(left, 0.0f), weight);
    }

    // The same for any rate and gap: steps `from` to `to - 1`.
    float many_steps(float weight, double rate, const Pace& pace, int64_t from, int64_t to) const {
        if (weight == 0 || rate == 0) return weight;
        double t = 0, shrunk = 0;
        const double x = rate * l2_;
        pace.stretches(from, to, [&](double level, int64_t n) {
            t += static_cast<double>(n) * std::log1p(x * level);
            shrunk += static_cast<double>(n) * level * rate * l1_;
            return true;
        });
        double magnitude = std::fabs(static_cast<double>(weight));
        // Of so small an x even 2^31 steps cannot be seen in float.
        magnitude -= x < 1e-16 ? shrunk : -std::expm1(-t) * (magnitude + ratio_);
        return std::copysign(static_cast<float>(std::max(magnitude, 0.0)), weight);
    }

    float steps(float weight, float rate, const Pace& pace, int64_t from, int64_t to) const {
        float doubt;
        const float result = few_steps(weight, rate, Gap(pace.sums(from, to)), doubt);
        return doubt < 1 ? result : many_steps(weight, rate, pace, from, to);
    }

  private:
    double l1_, l2_, ratio_;
    float narrow_l1_, narrow_l2_;
};

}  // namespace squall
