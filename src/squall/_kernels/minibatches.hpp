// What training loops have in common: which minibatches, what they add up to, and who is told.
#pragma once

#include <atomic>
#include <limits>

#include "losses.hpp"
#include "sparse.hpp"

namespace squall {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// What one minibatch adds up to, before any weight changes.
struct Sums {
    double loss = 0, weight = 0, intercept_gradient = 0;

    void add(Term term, double sample_weight) {
        weight += sample_weight;
        if (sample_weight == 0) return;  // whatever its loss, it has no part
        loss += sample_weight * term.loss;
        intercept_gradient += sample_weight * static_cast<double>(term.slope);
    }
};

// Which minibatches of a block to visit, and the counters that tell other processes of them.
struct Schedule {
    RowOrder order;
    int64_t batch_size, divisor, first_batch, n_batches;  // divisor: the nominal batch size
    int64_t *step, *progress;

    Schedule(const Input& order_, int64_t n_rows, int64_t batch_size_, int64_t first_batch_,
             int64_t n_batches_, const Buffer& step_, const Buffer& progress_)
        : order(order_, n_rows),
          batch_size(batch_size_),
          divisor(batch_size_),
          first_batch(first_batch_),
          n_batches(n_batches_),
          step(counter(step_, "step")),
          progress(progress_.is_valid() ? counter(progress_, "progress") : nullptr) {
        if (batch_size < 1) value_error("batch_size: is ", batch_size, ", a number >= 1 needed");
        batch_size =
            std::min(batch_size, std::max<int64_t>(order.size, 1));  // so that products cannot overflow
        const int64_t total = order.size / batch_size + (order.size % batch_size != 0);
        if (first_batch < 0 || n_batches < 0 || first_batch > total || n_batches > total - first_batch)
            value_error("first_batch, n_batches: ", first_batch, ", ", n_batches, " are not within the ",
                        total, " minibatches of ", order.size, " rows");
    }

    int64_t begin(int64_t batch) const { return batch * batch_size; }
    int64_t rows(int64_t batch) const { return std::min(batch_size, order.size - begin(batch)); }

    int64_t current_step() const { return std::atomic_ref<int64_t>(*step).load(std::memory_order_relaxed); }
    // Release: whoever sees the count sees the weights of the minibatches it counts.
    void finish_batch() const {
        std::atomic_ref<int64_t>(*step).fetch_add(1, std::memory_order_relaxed);
        if (progress) std::atomic_ref<int64_t>(*progress).fetch_add(1, std::memory_order_release);
    }
};

struct Outcome {
    double loss = 0, weight = 0;
    int64_t rows = 0;

    // Adds a minibatch unless it diverged; then the run ends before that minibatch is applied.
    bool add(const Sums& sums, int64_t n) {
        if (!std::isfinite(sums.loss)) {
            loss = nan;
            return false;
        }
        loss += sums.loss;
        weight += sums.weight;
        rows += n;
        return true;
    }

    nb::tuple to_python() const { return nb::make_tuple(loss, weight, rows); }
};

}  // namespace squall
