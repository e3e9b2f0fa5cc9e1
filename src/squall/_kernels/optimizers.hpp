// Optimisers of a table's rows. An optimiser is a struct with
//   static constexpr int n_state;       state columns per weight
//   using State = std::array<float, n_state>;
//   float step(float& weight, float gradient, State& state) const;
//       one step on one weight; returns the rate, for the regulariser's part of the same step
//   float rate(const State& state) const;
//       the rate of a step whose gradient is 0; 0 for a weight that no gradient has reached yet
// A new one is such a struct, its number below and its line in with_optimizer.
#pragma once

#include <array>
#include <cmath>

#include "arrays.hpp"

namespace squall {

struct Sgd {
    static constexpr int n_state = 0;
    using State = std::array<float, n_state>;
    float learning_rate;

    float step(float& weight, float gradient, State&) const {
        weight -= learning_rate * gradient;
        return learning_rate;
    }
    float rate(const State&) const { return learning_rate; }
};

// Duchi, Hazan & Singer 2011, diagonal form.
struct AdaGrad {
    static constexpr int n_state = 1;  // sum of squared gradients
    using State = std::array<float, n_state>;
    static constexpr float epsilon = 1e-10f;
    float learning_rate;

    float step(float& weight, float gradient, State& state) const {
        state[0] += gradient * gradient;
        const float r = rate(state);
        weight -= r * gradient;
        return r;
    }
    // Without the test an untouched weight would have the rate learning_rate / epsilon, and the
    // regulariser would wipe out whatever it was initialised to.
    float rate(const State& state) const {
        return state[0] > 0 ? learning_rate / (std::sqrt(state[0]) + epsilon) : 0.0f;
    }
};

enum OptimizerKind : int { kind_sgd = 0, kind_adagrad = 1 };

// Calls `use` with the chosen optimiser, so that each kernel is compiled once for each.
template <class Use>
auto with_optimizer(int kind, double learning_rate, Use use) {
    check_setting(learning_rate, "learning_rate");
    const auto rate = static_cast<float>(learning_rate);
    switch (kind) {
        case kind_sgd:
            return use(Sgd{rate});
        case kind_adagrad:
            return use(AdaGrad{rate});
        default:
            value_error("optimizer: ", kind, " is unknown, SGD = 0 or ADAGRAD = 1 needed");
    }
}

}  // namespace squall
