#include "search/piper/recompute_choice.h"

#include <algorithm>
#include <tuple>

namespace pw {

namespace {

// A set of layers that may still become the cheapest.
struct Partial {
    double cost, bytes;
    int last;  // position in the list of decisions, or -1
};

struct Decision {
    int layer;
    int before;  // likewise
};

}  // namespace

RecomputeChoice::RecomputeChoice(std::vector<Saving> savings) : savings_(std::move(savings)), costs_{0}, bytes_{0} {
    std::sort(savings_.begin(), savings_.end(), [](const Saving& a, const Saving& b) {
        const double price_a = a.cost / a.bytes, price_b = b.cost / b.bytes;
        return std::tie(price_a, a.bytes, a.layer) < std::tie(price_b, b.bytes, b.layer);
    });
    for (const Saving& saving : savings_) {
        costs_.push_back(costs_.back() + saving.cost);
        bytes_.push_back(bytes_.back() + saving.bytes);
    }
}

double RecomputeChoice::fractional(double bytes) const { return bytes <= 0 ? 0 : fractional_from(0, bytes); }

double RecomputeChoice::fractional_from(std::size_t first, double bytes) const {
    const auto full =
        std::lower_bound(bytes_.begin() + static_cast<std::ptrdiff_t>(first), bytes_.end(), bytes_[first] + bytes) -
        bytes_.begin();
    const auto last = std::min<std::size_t>(full, savings_.size());
    if (last == first)
        return 0;
    const double missing = bytes - (bytes_[last - 1] - bytes_[first]);
    return costs_[last - 1] - costs_[first] + missing / savings_[last - 1].bytes * savings_[last - 1].cost;
}

std::vector<int> RecomputeChoice::greedy(double bytes) const {
    std::vector<int> layers;
    for (std::size_t i = 0; i < savings_.size() && bytes_[i] < bytes; ++i)
        layers.push_back(savings_[i].layer);
    return layers;
}

// Extends sets layer by layer. A set that costs no less than another set and frees no more is dropped, and so is a set
// that cannot become cheaper than the best so far, not even in part. Sets are ascending in cost and in bytes.
std::vector<int> RecomputeChoice::cheapest(double bytes) const {
    std::vector<int> best = greedy(bytes);
    double least = costs_[best.size()];
    std::vector<Decision> decisions;
    std::vector<Partial> sets{{0, 0, -1}}, merged;
    const auto keep = [&](const Partial& set, std::size_t next) {
        const double missing = bytes - set.bytes;
        if (!merged.empty() && merged.back().bytes >= set.bytes)
            return;
        if (missing > bytes_.back() - bytes_[next] || set.cost + fractional_from(next, missing) >= least)
            return;
        merged.push_back(set);
    };
    const auto take_best = [&](const Partial& set) {
        least = set.cost;
        best.clear();
        for (int at = set.last; at >= 0; at = decisions[at].before)
            best.push_back(decisions[at].layer);
    };
    for (std::size_t i = 0; i < savings_.size() && !sets.empty(); ++i) {
        const Saving& saving = savings_[i];
        std::vector<Partial> more;
        for (const Partial& set : sets) {
            const Partial with{set.cost + saving.cost, set.bytes + saving.bytes, static_cast<int>(decisions.size())};
            if (with.cost >= least)
                break;
            decisions.push_back({saving.layer, set.last});
            if (with.bytes >= bytes)
                take_best(with);
            else
                more.push_back(with);
        }
        merged.clear();
        const auto cheaper = [](const Partial& a, const Partial& b) {
            return a.cost < b.cost || (a.cost == b.cost && a.bytes > b.bytes);
        };
        for (auto without = sets.begin(), with = more.begin(); without != sets.end() || with != more.end();) {
            const bool take = with == more.end() || (without != sets.end() && !cheaper(*with, *without));
            keep(take ? *without++ : *with++, i + 1);
        }
        sets.swap(merged);
    }
    return best;
}

}  // namespace pw
