#include "workloads/transformers/expert_load.h"

#include "workloads/random.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace pw {

namespace {

constexpr int kSampledTokens = 128, kFewestDraws = 32, kMostDraws = 16'384;
constexpr double kWork = 8e6;  // numbers to add, a few milliseconds

class ExpertDraws {
public:
    ExpertDraws(const Experts& experts, const ExpertDraw& draw)
        : active_(std::min(experts.active, experts.count)), key_(mixed(static_cast<std::uint64_t>(draw.seed))) {
        for (int k = 1; k <= experts.count; ++k)
            popularity_.push_back(std::pow(k, -draw.skew));
        chances_.assign(popularity_.size(), 0);
    }

    // Returns how many of these tokens choose each expert.
    std::vector<double> chosen_by(int tokens) {
        std::vector<double> counts(popularity_.size(), 0);
        for (int token = 0; token < tokens; ++token) {
            std::vector<double> left = popularity_;
            for (int choice = 0; choice < active_; ++choice)
                counts[take(left)] += 1;
        }
        tokens_ += tokens;
        return counts;
    }

    // The share of all tokens so far that an expert could expect.
    double chance(std::size_t expert) const { return chances_[expert] / tokens_; }

    std::vector<std::size_t> random_order() {
        std::vector<std::size_t> order(popularity_.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        for (std::size_t last = order.size(); last > 1; --last)
            std::swap(order[last - 1], order[static_cast<std::size_t>(uniform() * static_cast<double>(last))]);
        return order;
    }

private:
    double uniform() { return static_cast<double>(mixed(key_, ++drawn_) >> 11) * 0x1p-53; }

    // Adds what each expert could expect of this choice, and takes the chosen expert out.
    std::size_t take(std::vector<double>& left) {
        const double all = std::accumulate(left.begin(), left.end(), 0.0), at = uniform() * all;
        std::size_t chosen = left.size();
        double before = 0;
        for (std::size_t expert = 0; expert < left.size(); ++expert) {
            chances_[expert] += left[expert] / all;
            if (left[expert] > 0 && before <= at)
                chosen = expert;
            before += left[expert];
        }
        left[chosen] = 0;
        return chosen;
    }

    const int active_;
    const std::uint64_t key_;
    std::uint64_t drawn_ = 0;
    std::vector<double> popularity_, chances_;  // by expert
    double tokens_ = 0;
};

}  // namespace

// Of many tokens, a sample is drawn. The deviations of its counts from their means shrink with the root of the number
// of tokens.
double expected_load(const Experts& experts, int ranks, double tokens, const ExpertDraw& draw) {
    const int sample = static_cast<int>(std::clamp(std::round(tokens), 1.0, 1.0 * kSampledTokens));
    const double number = kWork / (1.0 * sample * experts.active * experts.count);
    ExpertDraws draws(experts, draw);
    std::vector<std::vector<double>> counts(
        static_cast<std::size_t>(std::clamp<double>(number, kFewestDraws, kMostDraws)));
    for (std::vector<double>& own : counts)
        own = draws.chosen_by(sample);
    const double shrunk = std::sqrt(sample / std::max<double>(sample, tokens));
    double sum = 0;
    for (const std::vector<double>& own : counts) {
        std::vector<double> loads(static_cast<std::size_t>(ranks), 0);
        const std::vector<std::size_t> order = draws.random_order();
        for (std::size_t place = 0; place < order.size(); ++place) {
            const double mean = sample * draws.chance(order[place]);
            loads[place * loads.size() / order.size()] += mean + shrunk * (own[order[place]] - mean);
        }
        sum += *std::ranges::max_element(loads) / std::accumulate(loads.begin(), loads.end(), 0.0) * ranks;
    }
    return std::max(1.0, sum / static_cast<double>(counts.size()));
}

}  // namespace pw
