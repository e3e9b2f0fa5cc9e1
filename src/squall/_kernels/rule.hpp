// How a table is updated: the optimiser and its settings, checked once.
#pragma once

#include <cmath>
#include <vector>

#include "arrays.hpp"
#include "pace.hpp"

namespace squall {

enum OptimizerKind : int {
    kind_sgd = 0,
    kind_adagrad = 1,
    kind_momentum = 2,
    kind_nesterov = 3,
    kind_adam = 4,
    kind_ftrl = 5,
};

inline void check_kind(int kind) {
    if (kind < kind_sgd || kind > kind_ftrl)
        value_error(
            "optimizer: ", kind,
            " is unknown, SGD = 0, ADAGRAD = 1, MOMENTUM = 2, NESTEROV = 3, ADAM = 4 or FTRL = 5 needed");
}

// Factors that undo the bias of Adam's moments, which start from 0.
struct Bias {
    float first, second;
};

class Rule {
  public:
    Rule(int kind, double learning_rate, double l1, double l2, double momentum, double beta_1, double beta_2,
         double epsilon, double beta, const Input& levels, int64_t steps_per_level, double clip_value,
         double clip_norm)
        : kind_(kind),
          learning_rate_(learning_rate),
          l1_(l1),
          l2_(l2),
          momentum_(momentum),
          beta_1_(beta_1),
          beta_2_(beta_2),
          epsilon_(epsilon),
          beta_(beta),
          clip_value_(clip_value),
          clip_norm_(clip_norm),
          pace_(levels.is_valid() ? vector<double>(levels, "levels") : std::span<const double>(&full_pace, 1),
                steps_per_level) {
        check_kind(kind);
        check_setting(learning_rate, "learning_rate");
        check_setting(l1, "l1");
        check_setting(l2, "l2");
        check_fraction(momentum, "momentum");
        check_fraction(beta_1, "beta_1");
        check_fraction(beta_2, "beta_2");
        check_setting(epsilon, "epsilon");
        check_setting(beta, "beta");
        check_setting(clip_value, "clip_value");
        check_setting(clip_norm, "clip_norm");
        if (kind == kind_ftrl && levels.is_valid())
            value_error("levels: FTRL's weights follow from sums taken at one rate, so it has no schedule");
        if (kind == kind_adam) tabulate_biases();
        if (kind == kind_momentum || kind == kind_nesterov) tabulate_decays();
    }

    int kind() const { return kind_; }
    float learning_rate() const { return static_cast<float>(learning_rate_); }
    double l1() const { return l1_; }
    double l2() const { return l2_; }
    float momentum() const { return static_cast<float>(momentum_); }
    float beta_1() const { return static_cast<float>(beta_1_); }
    float beta_2() const { return static_cast<float>(beta_2_); }
    float epsilon() const { return static_cast<float>(epsilon_); }
    float beta() const { return static_cast<float>(beta_); }
    const Pace& pace() const { return pace_; }
    bool penalized() const { return l1_ > 0 || l2_ > 0; }

    // After `count` updates, at least 1 (also 0, which is the bias of no update, reads as 1).
    Bias bias(float count) const {
        const auto i = static_cast<size_t>(count);
        if (i < biases_.size()) [[likely]]
            return biases_[i];
        return biases_.size() < most_biases ? biases_.back() : bias_by_power(count);
    }

    // momentum^n.
    double decay(int64_t n) const {
        if (static_cast<size_t>(n) < decays_.size()) [[likely]]
            return decays_[static_cast<size_t>(n)];
        return decays_.size() < most_decays ? 0.0 : std::pow(static_cast<double>(momentum()), n);
    }

    // Clips a minibatch's gradient, all of it: each element, then the length.
    void clip(float* gradient, size_t n) const {
        if (clip_value_ > 0) {
            const auto most = static_cast<float>(clip_value_);
            for (size_t i = 0; i < n; ++i) gradient[i] = std::clamp(gradient[i], -most, most);
        }
        if (clip_norm_ > 0) {
            double squares[4] = {};
            for (size_t i = 0; i < n; ++i) squares[i % 4] += static_cast<double>(gradient[i]) * gradient[i];
            const double norm = std::sqrt((squares[0] + squares[1]) + (squares[2] + squares[3]));
            if (norm <= clip_norm_) return;
            const auto factor = static_cast<float>(clip_norm_ / norm);
            for (size_t i = 0; i < n; ++i) gradient[i] *= factor;
        }
    }
    bool clips() const { return clip_value_ > 0 || clip_norm_ > 0; }

  private:
    static constexpr double full_pace = 1;
    static constexpr size_t most_biases = size_t{1} << 16, most_decays = size_t{1} << 12;

    static void check_fraction(double value, const char* name) {
        if (!(value >= 0 && value < 1)) value_error(name, ": is ", value, ", a number in [0, 1) needed");
    }

    Bias bias_by_power(double count) const {
        // The narrowed betas, with which the moments are updated.
        const double first = 1 - std::pow(static_cast<double>(beta_1()), count);
        const double second = 1 - std::pow(static_cast<double>(beta_2()), count);
        return {static_cast<float>(1 / first), static_cast<float>(1 / std::sqrt(second))};
    }

    // Until both are 1 in float.
    void tabulate_biases() {
        biases_.push_back(bias_by_power(1));
        do biases_.push_back(bias_by_power(static_cast<double>(biases_.size())));
        while (biases_.size() < most_biases && (biases_.back().first > 1 || biases_.back().second > 1));
    }

    // Until what is left of any float is nothing.
    void tabulate_decays() {
        double left = 1;
        for (; decays_.size() < most_decays && left > 1e-90; left *= static_cast<double>(momentum()))
            decays_.push_back(left);
    }

    int kind_;
    double learning_rate_, l1_, l2_, momentum_, beta_1_, beta_2_, epsilon_, beta_, clip_value_, clip_norm_;
    Pace pace_;
    std::vector<Bias> biases_;
    std::vector<double> decays_;
};

}  // namespace squall
