// Documents and topics: the proportions that suit a document best, and what its words are then made of.
// Sums keep their order, in eight lanes, so results are the same bits on every instruction set.
#pragma once

#include <bit>
#include <cmath>
#include <vector>

#include "lanes.hpp"
#include "sparse.hpp"

namespace squall {

constexpr int64_t together = 4;  // words of a document, or documents of a word, at a time

struct Documents {
    Csr rows;
    const Rows& words;  // P(word | topic), or in its place exp E log of it
    int64_t iterations;
    float tolerance;
    bool variational;
};

struct Told {
    double loss = 0, tokens = 0;
};

// Some rows, and how often each counts; too few are filled up with some of count 0.
struct Group {
    const Lanes* row[together];
    float count[together];
};

template <class Number, class Count>
[[gnu::always_inline]] inline Group group_at(const Rows& rows, int64_t begin, int64_t end, Number number,
                                             Count count) {
    Group group;
    for (int64_t i = 0; i < together; ++i) {
        const int64_t at = begin + i < end ? begin + i : begin;
        group.row[i] = rows.row(number(at));
        group.count[i] = begin + i < end ? count(at) : 0.0f;
    }
    return group;
}

// Each row times `other`: what a word is likely to be in a document, up to a factor.
[[gnu::always_inline]] inline void likelihoods(const Group& group, const Lanes* other, int64_t width,
                                               float* out) {
    Lanes sums[together] = {};
    for (int64_t j = 0; j < width; ++j)
        for (int64_t i = 0; i < together; ++i) sums[i] += other[j] * group.row[i][j];
    // exp(digamma) of small numbers is 0 in float32, and 0 / 0 would be no number.
    for (int64_t i = 0; i < together; ++i) out[i] = std::max(total(sums[i]), 1e-30f);
}

// Adds up the rows, each times its count over its likelihood.
[[gnu::always_inline]] inline void add_shares(const Group& group, const float* likelihood, int64_t width,
                                              Lanes* sums) {
    float share[together];
    for (int64_t i = 0; i < together; ++i) share[i] = group.count[i] / likelihood[i];
    for (int64_t j = 0; j < width; ++j)
        sums[j] += (share[0] * group.row[0][j] + share[1] * group.row[1][j]) +
                   (share[2] * group.row[2][j] + share[3] * group.row[3][j]);
}

// exp(digamma(x)), x > 0: from x >= 8 on by its asymptotic series, below that by the recurrence.
inline float exp_digamma(float x) {
    float falls = 0;
    for (; x < 8.0f; x += 1.0f) falls += 1.0f / x;
    const float inverse = 1.0f / x;
    const float risen = x - 0.5f + inverse * (1.0f / 24 + inverse * (1.0f / 48));
    return falls > 0 ? risen * std::exp(-falls) : risen;
}

// theta <- prior + sum_w count gamma_w with gamma_w proportional to theta P(w | topic), until it moves
// little. `used` is what stands for theta in a word's likelihood: theta itself, or exp E log of it.
[[gnu::always_inline]] inline void settle(const Documents& documents, int64_t begin, int64_t end,
                                          Lanes* theta, Lanes* used, Lanes* sums, const Lanes* prior,
                                          int64_t n_topics) {
    const int64_t width = documents.words.width();
    const auto refresh = [&] {
        if (!documents.variational) return;
        const auto* const from = reinterpret_cast<const float*>(theta);
        auto* const to = reinterpret_cast<float*>(used);
        for (int64_t k = 0; k < n_topics; ++k) to[k] = exp_digamma(from[k]);
    };
    const Csr& rows = documents.rows;
    refresh();
    for (int64_t turn = 0; turn < documents.iterations; ++turn) {
        std::fill_n(sums, width, Lanes{});
        for (int64_t at = begin; at < end; at += together) {
            const Group group = group_at(
                documents.words, at, end, [&](int64_t i) { return int64_t{rows.indices[i]}; },
                [&](int64_t i) { return rows.values ? rows.values[i] : 1.0f; });
            float p[together];
            likelihoods(group, used, width, p);
            add_shares(group, p, width, sums);
        }
        Lanes moved = {}, all = {};
        for (int64_t j = 0; j < width; ++j) {
            const Lanes next = prior[j] + used[j] * sums[j], step = next - theta[j];
            moved += step < 0.0f ? -step : step;
            all += next;
            theta[j] = next;
        }
        refresh();
        if (!(total(moved) > documents.tolerance * total(all))) break;
    }
}

SQUALL_WIDER
inline void settle_all(const Documents& documents, Rows& theta, Rows& used, float prior, int64_t n_topics) {
    Rows sums(1, n_topics), priors(1, n_topics);
    std::fill_n(priors.numbers(0), n_topics, prior);
    for (int64_t d = 0; d < documents.rows.rows(); ++d)
        settle(documents, documents.rows.indptr[d], documents.rows.indptr[d + 1], theta.row(d), used.row(d),
               sums.row(0), priors.row(0), n_topics);
}

// The documents of each word, in order, and how often they have it.
struct Postings {
    std::vector<int64_t> begins, documents;
    std::vector<float> counts;

    // Every entry of `rows` is one of `n_words` words.
    Postings(const Csr& rows, int64_t n_words) : begins(static_cast<size_t>(n_words) + 1) {
        for_each(rows, [&](int64_t, size_t word, float) { ++begins[word + 1]; });
        for (size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
        documents.resize(static_cast<size_t>(begins.back()));
        counts.resize(documents.size());
        std::vector<int64_t> next(begins.begin(), begins.end() - 1);
        for_each(rows, [&](int64_t d, size_t word, float count) {
            const auto at = static_cast<size_t>(next[word]++);
            documents[at] = d;
            counts[at] = count;
        });
    }

  private:
    template <class Use>
    static void for_each(const Csr& rows, Use use) {
        for (int64_t d = 0; d < rows.rows(); ++d) {
            const auto [begin, size] = rows.row(d);
            for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(begin + size); ++i)
                use(d, static_cast<size_t>(rows.indices[i]), rows.values ? rows.values[i] : 1.0f);
        }
    }
};

// log(x) of a normal number above 0: of the power of 2, and 2 artanh((m - 1) / (m + 1)) of m in
// [sqrt(1/2), sqrt(2)), of which the terms left out are below 1e-9.
[[gnu::always_inline]] inline float logarithm(float x) {
    constexpr uint32_t root_half = 0x3f3504f3u;
    const uint32_t above = std::bit_cast<uint32_t>(x) - root_half;
    const auto power = static_cast<float>(static_cast<int32_t>(above) >> 23);
    const float m = std::bit_cast<float>((above & 0x7fffffu) + root_half);
    const float s = (m - 1.0f) / (m + 1.0f), z = s * s;
    const float series = 1.0f + z * (1.0f / 3 + z * (1.0f / 5 + z * (1.0f / 7 + z * (1.0f / 9))));
    return power * 0.693147180559945f + 2.0f * s * series;
}

// count * log(likelihood), added up.
SQUALL_WIDER
inline Told told_of(const float* counts, float* likelihoods, size_t n) {
    for (size_t i = 0; i < n; ++i) likelihoods[i] = counts[i] * logarithm(likelihoods[i]);
    double loss[4] = {}, tokens[4] = {};
    for (size_t i = 0; i < n; ++i) {
        loss[i % 4] -= static_cast<double>(likelihoods[i]);
        tokens[i % 4] += static_cast<double>(counts[i]);
    }
    return {(loss[0] + loss[1]) + (loss[2] + loss[3]), (tokens[0] + tokens[1]) + (tokens[2] + tokens[3])};
}

// What the documents' words are made of, word by word, which keeps to the caches: each row of `words`
// becomes its sum of count gamma over documents. `used` is what `settle_all` has left of the documents.
SQUALL_WIDER
inline Told attribute_all(const Csr& rows, Rows& words, const Rows& used, bool statistics) {
    const Postings postings(rows, words.n());
    const int64_t width = words.width();
    std::vector<float> mass(static_cast<size_t>(used.n()));
    for (int64_t d = 0; d < used.n(); ++d) {
        Lanes all = {};
        for (int64_t j = 0; j < width; ++j) all += used.row(d)[j];
        mass[static_cast<size_t>(d)] = std::max(total(all), 1e-30f);
    }
    std::vector<float> likelihood(postings.counts.size() + together);
    Rows sums(1, width * lanes);
    const int64_t* const document = postings.documents.data();
    const float* const counts = postings.counts.data();
    for (int64_t word = 0; word < words.n(); ++word) {
        Lanes *const row = words.row(word), *const sum = sums.row(0);
        const int64_t begin = postings.begins[static_cast<size_t>(word)],
                      end = postings.begins[static_cast<size_t>(word) + 1];
        std::fill_n(sum, width, Lanes{});
        for (int64_t at = begin; at < end; at += together) {
            const Group group = group_at(
                used, at, end, [&](int64_t i) { return document[i]; }, [&](int64_t i) { return counts[i]; });
            float p[together];
            likelihoods(group, row, width, p);
            for (int64_t i = 0; i < together && at + i < end; ++i)
                likelihood[static_cast<size_t>(at + i)] = p[i] / mass[static_cast<size_t>(document[at + i])];
            if (statistics) add_shares(group, p, width, sum);
        }
        if (statistics)
            for (int64_t j = 0; j < width; ++j) row[j] *= sum[j];
    }
    return told_of(counts, likelihood.data(), postings.counts.size());
}

}  // namespace squall
