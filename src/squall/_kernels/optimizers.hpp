// Optimisers of a table's rows. An optimiser is a struct with
//   static constexpr int n_state;       state columns per weight
//   using State = std::array<float, n_state>;
//   static constexpr Idle idle;         what a weight does at a step whose gradient is 0
//   float step(float& weight, float gradient, State& state, Moment moment) const;
//       one step on one weight; returns the rate, for the regulariser's part of the same step
// and, by what it does when idle,
//   rests:   float rate(const State&) const;  the rate of such a step at full pace, for the regulariser; 0
//            for a weight that no gradient has reached yet
//   drifts:  the same, and drift(weight, state, n), drift_once and reach as in Momentum
//   follows: float weight(const State&, float old, double l1, double l2) const;  the weight that the state
//            and the penalties so far stand for
// A new one is such a struct, its number below and its line in with_optimizer. Sources: see __init__.py.
#pragma once

#include <array>
#include <cmath>

#include "arrays.hpp"
#include "rule.hpp"

namespace squall {

enum class Idle { rests, drifts, follows };

// What all weights have in common at one step.
struct Moment {
    float pace;     // of the schedule
    double l1, l2;  // penalties up to and with this step; for optimisers that follow from them
};

struct Sgd {
    static constexpr int n_state = 0;
    static constexpr Idle idle = Idle::rests;
    using State = std::array<float, n_state>;
    float learning_rate;

    explicit Sgd(const Rule& rule) : learning_rate(rule.learning_rate()) {}

    float step(float& weight, float gradient, State&, Moment moment) const {
        const float r = learning_rate * moment.pace;
        weight -= r * gradient;
        return r;
    }
    float rate(const State&) const { return learning_rate; }
};

// Heavy ball or, `ahead`, Nesterov's, in the form of Sutskever et al. 2013: the velocity holds the rates at
// which it was made, so that it decays without regard to the schedule. Of Nesterov's two points the table
// holds the one looked ahead to, at which gradients are taken.
template <bool ahead>
struct Momentum {
    static constexpr int n_state = 1;  // velocity
    static constexpr Idle idle = Idle::drifts;
    using State = std::array<float, n_state>;
    float learning_rate, momentum;
    const Rule* rule;

    explicit Momentum(const Rule& rule_)
        : learning_rate(rule_.learning_rate()), momentum(rule_.momentum()), rule(&rule_) {}

    float step(float& weight, float gradient, State& state, Moment moment) const {
        const float r = learning_rate * moment.pace;
        state[0] = momentum * state[0] - r * gradient;
        weight += ahead ? momentum * state[0] - r * gradient : state[0];
        return r;
    }
    float rate(const State&) const { return learning_rate; }

    // The sum of a geometric series.
    void drift(float& weight, State& state, int64_t n) const {
        if (state[0] == 0) return;
        const double left = rule->decay(n);
        const double moved = static_cast<double>(state[0]) * share() * (1 - left);
        weight = static_cast<float>(weight + moved);
        state[0] = static_cast<float>(state[0] * left);
    }

    // The same for one step, and how far `velocity` can still drift.
    void drift_once(double& weight, double& velocity) const {
        velocity *= momentum;
        weight += ahead ? momentum * velocity : velocity;
    }
    double reach(double velocity) const { return std::fabs(velocity) * share(); }

  private:
    double share() const {
        const double m = momentum;
        return (ahead ? m * m : m) / (1 - m);
    }
};

// Duchi, Hazan & Singer 2011, diagonal form.
struct AdaGrad {
    static constexpr int n_state = 1;  // sum of squared gradients
    static constexpr Idle idle = Idle::rests;
    using State = std::array<float, n_state>;
    static constexpr float epsilon = 1e-10f;
    float learning_rate;

    explicit AdaGrad(const Rule& rule) : learning_rate(rule.learning_rate()) {}

    float step(float& weight, float gradient, State& state, Moment moment) const {
        state[0] += gradient * gradient;
        const float r = moment.pace * rate(state);
        weight -= r * gradient;
        return r;
    }
    // Without the test an untouched weight would have the rate learning_rate / epsilon, and the
    // regulariser would wipe out whatever it was initialised to.
    float rate(const State& state) const {
        return state[0] > 0 ? learning_rate / (std::sqrt(state[0]) + epsilon) : 0.0f;
    }
};

// Kingma & Ba 2015, algorithm 1, in each weight's own time: moments and their count stand still while no
// minibatch touches the weight. The count is a float: beyond 2^24 it stands still, and matters no more.
struct Adam {
    static constexpr int n_state = 3;  // mean gradient, mean squared gradient, number of updates
    static constexpr Idle idle = Idle::rests;
    using State = std::array<float, n_state>;
    float learning_rate, beta_1, beta_2, epsilon;
    const Rule* rule;

    explicit Adam(const Rule& rule_)
        : learning_rate(rule_.learning_rate()),
          beta_1(rule_.beta_1()),
          beta_2(rule_.beta_2()),
          epsilon(rule_.epsilon()),
          rule(&rule_) {}

    float step(float& weight, float gradient, State& state, Moment moment) const {
        state[0] = beta_1 * state[0] + (1 - beta_1) * gradient;
        state[1] = beta_2 * state[1] + (1 - beta_2) * (gradient * gradient);
        state[2] += 1;
        const Bias bias = rule->bias(state[2]);
        const float r = moment.pace * rate(state, bias);
        weight -= r * bias.first * state[0];
        return r;
    }
    float rate(const State& state) const { return rate(state, rule->bias(state[2])); }

  private:
    float rate(const State& state, Bias bias) const {
        return state[1] > 0 ? learning_rate / (std::sqrt(state[1]) * bias.second + epsilon) : 0.0f;
    }
};

// FTRL-Proximal with per-coordinate rates (McMahan et al. 2013) and penalties that grow by l1 and l2 a step
// (McMahan 2011), so that they are those of the mean loss. The weight follows from state and step.
struct Ftrl {
    static constexpr int n_state = 2;  // z; sum of squared gradients n
    static constexpr Idle idle = Idle::follows;
    using State = std::array<float, n_state>;
    float learning_rate, beta;

    explicit Ftrl(const Rule& rule) : learning_rate(rule.learning_rate()), beta(rule.beta()) {}

    float step(float& weight, float gradient, State& state, Moment moment) const {
        const float square = gradient * gradient, n = state[1] + square;
        if (!(n > 0)) return 0;
        // The first step takes the centre of the quadratic term to what the weight was initialised to.
        const float root = std::sqrt(n);
        const float change = state[1] > 0 ? square / (root + std::sqrt(state[1])) : root + beta;
        if (learning_rate > 0) state[0] += gradient - change / learning_rate * weight;
        state[1] = n;
        weight = this->weight(state, weight, moment.l1, moment.l2);
        return 0;
    }

    float weight(const State& state, float old, double l1, double l2) const {
        if (!(state[1] > 0) || !(learning_rate > 0)) return old;
        const double z = state[0],
                     curvature = (static_cast<double>(beta) + std::sqrt(state[1])) / learning_rate;
        const double beyond = std::max(std::fabs(z) - l1, 0.0);
        return static_cast<float>(std::copysign(beyond / (curvature + l2), -z));
    }
};

// Calls `use` with the rule's optimiser, so that each kernel is compiled once for each.
template <class Use>
auto with_optimizer(const Rule& rule, Use use) {
    switch (rule.kind()) {
        case kind_sgd:
            return use(Sgd(rule));
        case kind_adagrad:
            return use(AdaGrad(rule));
        case kind_momentum:
            return use(Momentum<false>(rule));
        case kind_nesterov:
            return use(Momentum<true>(rule));
        case kind_adam:
            return use(Adam(rule));
        default:
            return use(Ftrl(rule));  // a rule has no other kind
    }
}

}  // namespace squall
