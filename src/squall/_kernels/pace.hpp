// A learning-rate schedule: by what the learning rate is multiplied at each step of a table.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "arrays.hpp"

namespace squall {

// Piecewise constant: `span` steps at each of the given levels, and at the last for ever. So what a row has
// missed follows from a few sums, whatever the curve that the levels follow.
class Pace {
  public:
    Pace(std::span<const double> levels, int64_t span) : span_(span) {
        if (levels.empty()) value_error("levels: is empty, a number for each stage of the schedule needed");
        if (span < 1) value_error("steps_per_level: is ", span, ", a number >= 1 needed");
        Sums total;
        for (const double level : levels) {
            if (!(level >= 0 && level <= 1)) value_error("levels: ", level, " is not in [0, 1]");
            stages_.push_back({level, total});
            total.add(level, static_cast<double>(span));
        }
    }

    // Sums over steps of the level and of its powers.
    struct Sums {
        double first = 0, second = 0, third = 0;

        void add(double level, double steps) {
            first += steps * level;
            second += steps * level * level;
            third += steps * level * level * level;
        }
    };

    bool is_constant() const { return stages_.size() == 1; }
    float level() const { return static_cast<float>(stages_[0].level); }  // of a constant one

    double at(int64_t step) const { return stages_[stage(step)].level; }

    // Over steps `from` to `to - 1`.
    Sums sums(int64_t from, int64_t to) const {
        if (stages_.size() == 1) [[likely]] {
            Sums result;
            result.add(stages_[0].level, static_cast<double>(to - from));
            return result;
        }
        const Sums a = before(from), b = before(to);
        return {b.first - a.first, b.second - a.second, b.third - a.third};
    }

    // Calls use(level, steps) for each stretch of one level within steps `from` to `to - 1`.
    template <class Use>
    void stretches(int64_t from, int64_t to, Use use) const {
        while (from < to) {
            const size_t i = stage(from);
            const int64_t end =
                i + 1 == stages_.size() ? to : std::min(to, (static_cast<int64_t>(i) + 1) * span_);
            if (!use(stages_[i].level, end - from)) return;
            from = end;
        }
    }

  private:
    struct Stage {
        double level;
        Sums before;
    };

    size_t stage(int64_t step) const {
        if (stages_.size() == 1) return 0;
        return std::min(static_cast<size_t>(step / span_), stages_.size() - 1);
    }

    Sums before(int64_t step) const {
        const size_t i = stage(step);
        Sums result = stages_[i].before;
        result.add(stages_[i].level, static_cast<double>(step - static_cast<int64_t>(i) * span_));
        return result;
    }

    std::vector<Stage> stages_;
    int64_t span_;
};

}  // namespace squall
