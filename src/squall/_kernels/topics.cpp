// Topic models: what a block of documents says of its words' topics, given a table of all words' topics.
#include "topics.hpp"

#include <limits>

#include "bindings.hpp"
#include "half.hpp"

namespace squall {
namespace {

// SplitMix64's finaliser (Steele, Lea, Flood 2014).
[[gnu::always_inline]] inline uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

// Mass that the table does not hold yet: as much of each word, spread over topics at random, but the same
// way whoever asks.
struct Noise {
    std::span<const int64_t> words;
    double mass, n_words;  // mass of all words together
    uint64_t seed;

    void add(int64_t i, float* row, int64_t n_topics) const {
        const uint64_t base = mixed(seed ^ mixed(static_cast<uint64_t>(words[static_cast<size_t>(i)]) + 1));
        const auto scale = static_cast<float>(2 * mass / n_words / static_cast<double>(n_topics));
        for (int64_t k = 0; k < n_topics; ++k) {
            const uint64_t bits = mixed(base + static_cast<uint64_t>(k) * 0x9E3779B97F4A7C15u);
            row[k] += scale * (static_cast<float>(bits >> 40) * 0x1p-24f);
        }
    }
};

struct Settings {
    float doc_topic_prior, topic_word_prior, tolerance;
    int64_t n_words, iterations;
    uint64_t seed;
    bool variational;

    Settings(double doc_topic_prior_, double topic_word_prior_, int64_t n_words_, int64_t iterations_,
             double tolerance_, uint64_t seed_, bool variational_)
        : doc_topic_prior(prior(doc_topic_prior_, "doc_topic_prior")),
          topic_word_prior(prior(topic_word_prior_, "topic_word_prior")),
          tolerance(static_cast<float>(tolerance_)),
          n_words(n_words_),
          iterations(iterations_),
          seed(seed_),
          variational(variational_) {
        check_setting(tolerance_, "tolerance");
        if (n_words < 1) value_error("n_words: is ", n_words, ", a number >= 1 needed");
        if (iterations < 0) value_error("iterations: is ", iterations, ", a number >= 0 needed");
    }

  private:
    static float prior(double value, const char* name) {
        check_setting(value, name);
        if (value <= 0) value_error(name, ": is ", value, ", a number > 0 needed");
        return static_cast<float>(value);
    }
};

// P(w | topic) of the rows pulled, the last of which holds the topics' totals; or exp E log of it.
SQUALL_WIDER
void normalise(Matrix<const float> pulled, const Noise& noise, const Settings& settings, Rows& words) {
    const bool variational = settings.variational;
    const float eta = settings.topic_word_prior;
    const int64_t n_topics = pulled.columns;
    std::vector<float> divided(static_cast<size_t>(n_topics));
    const double added = noise.mass / static_cast<double>(n_topics) +
                         static_cast<double>(settings.n_words) * static_cast<double>(eta);
    for (int64_t k = 0; k < n_topics; ++k) {
        const auto held = static_cast<double>(pulled.row(words.n())[k]);
        const auto all = static_cast<float>((held > 0 ? held : 0.0) + added);
        divided[static_cast<size_t>(k)] = 1.0f / (variational ? exp_digamma(all) : all);
    }
    const float* const by = divided.data();
    for (int64_t i = 0; i < words.n(); ++i) {
        const float* const from = pulled.row(i);
        float* const to = words.numbers(i);
        // What is withdrawn may leave a rounding error below 0.
        for (int64_t k = 0; k < n_topics; ++k) to[k] = from[k] > 0.0f ? from[k] : 0.0f;
        if (noise.mass > 0) noise.add(i, to, n_topics);
        if (variational)
            for (int64_t k = 0; k < n_topics; ++k) to[k] = exp_digamma(to[k] + eta) * by[k];
        else
            for (int64_t k = 0; k < n_topics; ++k) to[k] = (to[k] + eta) * by[k];
    }
}

void check_numbers(const Csr& rows, int64_t n) {
    for (int64_t d = 0; d < rows.rows(); ++d) {
        const auto [begin, size] = rows.row(d);
        for (int64_t i = begin; i < begin + size; ++i)
            if (rows.indices[static_cast<size_t>(i)] < 0 || rows.indices[static_cast<size_t>(i)] >= n)
                bad_index(d, i - begin, rows.indices[static_cast<size_t>(i)], n);
    }
}

// The arguments that all functions here share, checked.
struct Task {
    Csr rows;
    Matrix<const float> table;
    Matrix<float> theta;
    Settings settings;
    Noise noise;

    Task(const nb::tuple& rows_, const Input& words, const Input& pulled, const Buffer& theta_,
         const Settings& settings_, double mass)
        : rows(csr_of(rows_)),
          table(matrix<float>(pulled, "pulled")),
          theta(matrix<float>(theta_, "theta")),
          settings(settings_),
          noise{{}, mass, static_cast<double>(settings_.n_words), settings_.seed} {
        if (n() < 0 || n_topics() < 1) value_error("pulled: is empty, rows of words and of totals needed");
        if (theta.rows != rows.rows() || theta.columns != n_topics())
            value_error("theta: has shape (", theta.rows, ", ", theta.columns, "), (", rows.rows(), ", ",
                        n_topics(), ") needed");
        noise.words = vector<int64_t>(words, "words", static_cast<size_t>(n() + 1));
        check_setting(mass, "mass");
    }

    int64_t n() const { return table.rows - 1; }
    int64_t n_topics() const { return table.columns; }

    // `use` gets what the documents add to the words' rows.
    template <class Use>
    Told run(bool statistics, Use use) const {
        check_numbers(rows, n());
        Rows known(n(), n_topics()), mixtures(rows.rows(), n_topics());
        normalise(table, noise, settings, known);
        mixtures.read({theta.data, theta.rows, theta.columns});
        const bool variational = settings.variational;
        Rows expected(variational ? rows.rows() : 0, n_topics());
        Rows& used = variational ? expected : mixtures;
        settle_all({rows, known, settings.iterations, settings.tolerance, variational}, mixtures, used,
                   settings.doc_topic_prior, n_topics());
        mixtures.write(theta);
        const Told told = attribute_all(rows, known, used, statistics);
        if (statistics) use(known);
        return told;
    }

  private:
    static Csr csr_of(const nb::tuple& rows) {
        if (rows.size() != 3)
            value_error("rows: are ", rows.size(), " arrays, (indptr, local, values) needed");
        const Input values = rows[2].is_none() ? Input() : nb::cast<Input>(rows[2]);
        return {nb::cast<Input>(rows[0]), nb::cast<Input>(rows[1]), values, "local"};
    }
};

nb::tuple topic_statistics(const nb::tuple& rows, const Input& words, const Input& pulled,
                           const Buffer& theta, const Settings& settings, double mass, bool statistics) {
    const Task task(rows, words, pulled, theta, settings, mass);
    const int64_t n = task.n(), n_topics = task.n_topics();
    Owned<float> out(statistics ? static_cast<size_t>(n * n_topics) : 0);
    Told told;
    {
        nb::gil_scoped_release release;
        told = task.run(statistics, [&](const Rows& found) {
            for (int64_t i = 0; i < n; ++i)
                std::copy_n(found.numbers(i), n_topics, out.data.get() + i * n_topics);
        });
    }
    nb::object made = nb::none();
    if (statistics)
        made = to_numpy(std::move(out.data), {static_cast<size_t>(n), static_cast<size_t>(n_topics)});
    return nb::make_tuple(made, told.loss, told.tokens);
}

// Statistics as they are kept: float32, or float16 as its bits.
template <class Kept>
[[gnu::always_inline]] inline float kept_value(Kept kept) {
    if constexpr (std::is_same_v<Kept, float>)
        return kept;
    else
        return half_to_float(kept);
}

constexpr float largest_half = 65504.0f;

// Rounds statistics to what is kept of them; the difference to what was kept before goes to the table.
template <class Kept, class Old>
[[gnu::always_inline]] inline void settle_accounts(const Rows& found, int64_t n_topics, const Old* old,
                                                   float scale, Kept* kept, float* delta) {
    std::vector<double> totals(static_cast<size_t>(n_topics));
    double* const sums = totals.data();
    for (int64_t i = 0; i < found.n(); ++i) {
        const float* const row = found.numbers(i);
        for (int64_t k = 0; k < n_topics; ++k) {
            if constexpr (std::is_same_v<Kept, float>)
                kept[k] = row[k];
            else
                kept[k] = float_to_half(row[k]);
        }
        for (int64_t k = 0; k < n_topics; ++k)
            delta[k] = (kept_value(kept[k]) - (old ? kept_value(old[k]) : 0.0f)) * scale;
        for (int64_t k = 0; k < n_topics; ++k) sums[k] += static_cast<double>(delta[k]);
        kept += n_topics;
        delta += n_topics;
        if (old) old += n_topics;
    }
    for (int64_t k = 0; k < n_topics; ++k) delta[k] = static_cast<float>(sums[k]);
}

SQUALL_WIDER
bool fits_half(const Rows& found) {
    Lanes largest = {};
    for (int64_t i = 0; i < found.n() * found.width(); ++i) {
        const Lanes value = found.row(0)[i];
        largest = value > largest ? value : largest;
    }
    float most = 0;
    for (int64_t i = 0; i < lanes; ++i) most = std::max(most, largest[i]);
    return most <= largest_half;
}

SQUALL_WIDER
void settle_halves(const Rows& found, int64_t n_topics, const uint16_t* old, float scale, uint16_t* kept,
                   float* delta) {
    settle_accounts(found, n_topics, old, scale, kept, delta);
}

// What was kept before, in either form.
struct Before {
    const uint16_t* halves = nullptr;
    const float* floats = nullptr;

    Before(const Input& old, int64_t rows, int64_t columns) {
        if (!old.is_valid()) return;
        const bool wide = old.dtype() == nb::dtype<float>();
        if (wide)
            floats = checked(matrix<float>(old, "old"), rows, columns);
        else
            halves = checked(matrix<uint16_t>(old, "old"), rows, columns);
    }

  private:
    template <class T>
    static const T* checked(Matrix<const T> old, int64_t rows, int64_t columns) {
        if (old.rows != rows || old.columns != columns)
            value_error("old: has shape (", old.rows, ", ", old.columns, "), (", rows, ", ", columns,
                        ") needed");
        return old.data;
    }
};

nb::tuple topic_update(const nb::tuple& rows, const Input& words, const Input& pulled, const Buffer& theta,
                       const Settings& settings, double mass, const Input& old, double scale) {
    const Task task(rows, words, pulled, theta, settings, mass);
    const int64_t n = task.n(), n_topics = task.n_topics();
    const auto height = static_cast<size_t>(n), width = static_cast<size_t>(n_topics), size = height * width;
    const Before before(old, n, n_topics);
    const auto factor = static_cast<float>(scale);
    Owned<float> delta(size + width);
    std::unique_ptr<uint16_t[]> halves;
    std::unique_ptr<float[]> floats;
    Told told;
    {
        nb::gil_scoped_release release;
        told = task.run(true, [&](const Rows& found) {
            if (!before.floats && fits_half(found)) {
                halves = std::make_unique_for_overwrite<uint16_t[]>(size);
                settle_halves(found, n_topics, before.halves, factor, halves.get(), delta.data.get());
                return;
            }
            floats = std::make_unique_for_overwrite<float[]>(size);
            if (before.floats)
                settle_accounts(found, n_topics, before.floats, factor, floats.get(), delta.data.get());
            else
                settle_accounts(found, n_topics, before.halves, factor, floats.get(), delta.data.get());
        });
    }
    nb::object kept =
        halves ? to_numpy(std::move(halves), {height, width}) : to_numpy(std::move(floats), {height, width});
    return nb::make_tuple(kept, to_numpy(std::move(delta.data), {height + 1, width}), told.loss, told.tokens);
}

// The difference between two states that are kept, as an update of the table.
nb::object topic_difference(const Input& kept, const Input& old, double scale) {
    if (!kept.is_valid() || kept.ndim() != 2) value_error("kept: an array of 2 dimensions is needed");
    const auto n = static_cast<int64_t>(kept.shape(0)), n_topics = static_cast<int64_t>(kept.shape(1));
    const Before after(kept, n, n_topics), before(old, n, n_topics);
    const auto value = [](const Before& state, int64_t i) {
        return state.floats ? state.floats[i] : state.halves ? half_to_float(state.halves[i]) : 0.0f;
    };
    Owned<float> delta(static_cast<size_t>((n + 1) * n_topics));
    std::vector<double> totals(static_cast<size_t>(n_topics));
    for (int64_t i = 0; i < n * n_topics; ++i) {
        const float change = (value(after, i) - value(before, i)) * static_cast<float>(scale);
        delta[static_cast<size_t>(i)] = change;
        totals[static_cast<size_t>(i % n_topics)] += static_cast<double>(change);
    }
    for (int64_t k = 0; k < n_topics; ++k)
        delta[static_cast<size_t>(n * n_topics + k)] = static_cast<float>(totals[static_cast<size_t>(k)]);
    return to_numpy(std::move(delta.data), {static_cast<size_t>(n + 1), static_cast<size_t>(n_topics)});
}

}  // namespace

void bind_topics(nb::module_& m) {
    nb::class_<Settings>(m, "TopicSettings")
        .def(nb::init<double, double, int64_t, int64_t, double, uint64_t, bool>(), nb::arg("doc_topic_prior"),
             nb::arg("topic_word_prior"), nb::arg("n_words"), nb::arg("iterations"), nb::arg("tolerance"),
             nb::arg("seed") = 0, nb::arg("variational") = false);
    m.def("topic_statistics", &topic_statistics, nb::arg("rows"), nb::arg("words").noconvert(),
          nb::arg("pulled").noconvert(), nb::arg("theta").noconvert(), nb::arg("settings"), nb::arg("mass"),
          nb::arg("statistics"));
    m.def("topic_update", &topic_update, nb::arg("rows"), nb::arg("words").noconvert(),
          nb::arg("pulled").noconvert(), nb::arg("theta").noconvert(), nb::arg("settings"), nb::arg("mass"),
          nb::arg("old").noconvert().none(), nb::arg("scale"));
    m.def("topic_difference", &topic_difference, nb::arg("kept").noconvert(),
          nb::arg("old").noconvert().none(), nb::arg("scale"));
}

}  // namespace squall
