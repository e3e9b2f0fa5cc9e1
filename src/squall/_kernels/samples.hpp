// Labels and sample weights of a block of rows, checked when read.
#pragma once

#include "arrays.hpp"

namespace squall {

template <class Loss>
struct Samples {
    std::span<const float> labels;
    const float* weights;  // null: all ones
    Loss loss;

    Samples(const Input& labels_, const Input& weights_, size_t rows, Loss loss_ = {})
        : labels(vector<float>(labels_, "labels", rows)),
          weights(optional_vector<float>(weights_, "weights", rows)),
          loss(loss_) {}

    struct Sample {
        float label;
        double weight;
    };

    Sample at(int64_t row) const {
        const float label = labels[static_cast<size_t>(row)];
        if (!loss.valid(label)) [[unlikely]]
            bad_label(row, label);
        const float weight = weights ? weights[row] : 1.0f;
        if (!(weight >= 0 && std::isfinite(weight))) [[unlikely]]
            bad_weight(row, weight);
        return {label, weight};
    }

  private:
    // Apart, so that `at` is small enough to be inlined.
    [[noreturn, gnu::noinline, gnu::cold]] void bad_label(int64_t row, float label) const {
        value_error("labels: row ", row, ": label is ", label, ", ", loss.labels(), " needed");
    }
    [[noreturn, gnu::noinline, gnu::cold]] static void bad_weight(int64_t row, float weight) {
        value_error("weights: row ", row, ": weight is ", weight, ", a finite number >= 0 needed");
    }
};

// Labels that number one of `n` classes.
struct Classes {
    int64_t n;

    bool valid(float label) const {
        return label >= 0 && label < static_cast<float>(n) && label == std::floor(label);
    }
    std::string labels() const { return text("a whole number in [0, ", n, ")"); }
};

inline int64_t checked_classes(int64_t n) {
    if (n < 2 || n > 1 << 24) value_error("n_classes: is ", n, ", a number in [2, 2^24] needed");
    return n;
}

}  // namespace squall
