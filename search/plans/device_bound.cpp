#include "search/plans/device_bound.h"

#include "search/plans/split_times.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

namespace pw {

namespace {

constexpr int kRounds = 300, kRoundsInVain = 100;  // for all splits
constexpr int kRoundsOfBox = 60, kRoundsOfBoxInVain = 25;
constexpr std::int64_t kNumbersPerTask = 32;         // that are read in less time than a task is simulated
constexpr std::int64_t kUsualNumbers = 150'000'000;  // of boxes

void normalize(std::vector<double>& weights) {
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (double& weight : weights)
        weight /= sum;
}

// Moves a point to the nearest weights that are not negative and add up to 1.
void project(std::vector<double>& weights) {
    std::vector<double> sorted = weights;
    std::ranges::sort(sorted, std::greater<>{});
    double sum = 0, less = 0;
    for (std::size_t count = 0; count < sorted.size(); ++count) {
        sum += sorted[count];
        if (const double cut = (sum - 1) / static_cast<double>(count + 1); sorted[count] > cut)
            less = cut;
    }
    for (double& weight : weights)
        weight = std::max(0.0, weight - less);
}

// Finds the weights for which the least mean is greatest: a subgradient is the times of the split with the least mean.
// Steps go in the mean direction of the last subgradients, as far as a mean of `aim` would need by the subgradient
// (Polyak). After many steps in vain they go less far, from the best weights.
class Ascent {
public:
    explicit Ascent(std::vector<double> weights) : weights_(weights), best_weights_(std::move(weights)) {}

    const std::vector<double>& weights() const { return weights_; }
    const std::vector<double>& best_weights() const { return best_weights_; }
    double best() const { return best_; }

    void step(double mean, const std::vector<double>& times, double limit) {
        constexpr int kInVain = 20;
        constexpr double kKept = 0.7, kShorter = 0.6, kAimed = 1.005;
        if (mean > best_) {
            in_vain_ = mean > best_ * 1.0001 ? 0 : in_vain_;
            best_ = mean;
            best_weights_ = weights_;
        }
        if (++in_vain_ > kInVain) {
            in_vain_ = 0;
            part_ *= kShorter;
            weights_ = best_weights_;
            direction_.clear();
        }
        const double average = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
        direction_.resize(times.size(), 0);
        double square = 0;
        for (std::size_t time = 0; time < times.size(); ++time) {
            direction_[time] = kKept * direction_[time] + (1 - kKept) * (times[time] - average);
            square += direction_[time] * direction_[time];
        }
        if (square == 0)
            return;
        const double far = part_ * (std::max(std::min(limit, 2 * best_), kAimed * best_) - mean) / square;
        for (std::size_t time = 0; time < times.size(); ++time)
            weights_[time] += far * direction_[time];
        project(weights_);
    }

private:
    std::vector<double> weights_, best_weights_, direction_;
    double best_ = 0, part_ = 1;
    int in_vain_ = 0;
};

// The splits of a box, and what is known of them.
struct BoundedBox {
    CutBox cuts;
    double bound;                 // of the longest time of a split
    std::vector<double> weights;  // with which it was found
    std::vector<double> means;    // by cut: its mean in the splits with the least means
    bool is_raised = false;       // further rounds raise the bound little
    bool operator<(const BoundedBox& other) const { return bound > other.bound; }  // a queue has the greatest first
};

// Branch and bound over boxes of cuts.
class Boxes {
public:
    Boxes(const SplitTimes& splits, double limit, Deadline& deadline)
        : splits_(splits), scratch_(splits.scratch()), limit_(limit), shortest_(limit), deadline_(deadline) {}

    // Returns a lower bound on the longest time of all splits, at most the limit.
    double bound(std::int64_t numbers) {
        std::vector<double> weights;
        for (std::size_t time = 0; time < splits_.count(); ++time)
            weights.push_back(splits_.is_of_device(time) ? 1 : 0.01);
        normalize(weights);
        BoundedBox all{splits_.all_splits(), 0, std::move(weights), {}};
        raise(all, kRounds, kRoundsInVain, limit_);
        const std::int64_t end = looked_ + numbers;
        for (open_.push(std::move(all));
             looked_ < end && open_.top().bound < shortest_ * kClose && !deadline_.passed();) {
            BoundedBox box = open_.top();
            open_.pop();
            if (!box.is_raised) {  // as far as it has to be: boxes with greater bounds may never be divided
                const double other = open_.empty() ? limit_ : open_.top().bound;
                raise(box, kRoundsOfBox, kRoundsOfBoxInVain, other * kAbove);
                open_.push(std::move(box));
                continue;
            }
            const std::size_t cut = widest(box.cuts);
            const int middle = middle_of(box, cut);
            for (const bool later : {false, true}) {
                BoundedBox part = box;
                (later ? part.cuts.low : part.cuts.high)[cut] = later ? middle + 1 : middle;
                part.is_raised = false;
                if (tighten(part.cuts))
                    open_.push(std::move(part));
            }
            if (open_.empty())
                return limit_;
        }
        return std::min(open_.top().bound, limit_);
    }
    std::int64_t looked() const { return looked_; }

private:
    static constexpr double kClose = 0.9999;  // to the shortest known: hardly more can be proven
    static constexpr double kAbove = 1.0005;  // the bound of another box

    // Raises the bound of a box. It is raised once rounds are in vain, or above `enough`.
    void raise(BoundedBox& box, int rounds, int in_vain, double enough) {
        Ascent ascent(box.weights);
        box.means.assign(box.cuts.low.size(), 0);
        int found = 0, round = 0;
        for (int vain = 0; round < rounds && vain < in_vain && ascent.best() <= enough; ++round) {
            if (deadline_.passed())
                break;
            const SplitTimes::Least least = splits_.least(ascent.weights(), box.cuts, *scratch_);
            looked_ += least.looked;
            if (least.cuts.empty()) {
                box.bound = limit_;
                box.is_raised = true;
                return;
            }
            const double longest = *std::ranges::max_element(least.times);
            shortest_ = std::min(shortest_, longest);
            if (box.cuts.low == box.cuts.high) {
                box.bound = std::max(box.bound, std::min(longest, limit_));
                box.is_raised = true;
                return;
            }
            for (std::size_t cut = 0; cut < box.means.size(); ++cut)
                box.means[cut] += (least.cuts[cut] - box.means[cut]) / (found + 1);
            ++found;
            vain = least.mean > ascent.best() * 1.0002 ? 0 : vain + 1;
            ascent.step(least.mean, least.times, shortest_);
            if (ascent.best() > shortest_ * (1 + 2e-6))
                break;
        }
        box.is_raised = ascent.best() <= enough;
        if (ascent.best() <= box.bound)
            return;
        box.bound = std::min(ascent.best(), limit_);
        box.weights = ascent.best_weights();
    }

    // Returns the cut whose range has the most work, or 0 if every range is a single cut.
    std::size_t widest(const CutBox& box) const {
        std::size_t widest = 0;
        double most = 0;
        for (std::size_t cut = 1; cut + 1 < box.low.size(); ++cut)
            if (box.low[cut] < box.high[cut]) {
                const auto work =
                    static_cast<double>(splits_.passes_before(box.high[cut]) - splits_.passes_before(box.low[cut]));
                const double more = work + (box.high[cut] - box.low[cut]);
                if (widest == 0 || more > most) {
                    widest = cut;
                    most = more;
                }
            }
        return widest;
    }

    static int middle_of(const BoundedBox& box, std::size_t cut) {
        constexpr double kFromEnds = 0.2;
        const int low = box.cuts.low[cut], high = box.cuts.high[cut];
        const double margin = kFromEnds * (high - low);
        const double middle = std::clamp(box.means[cut], low + margin, high - margin);
        return std::clamp(static_cast<int>(middle), low, high - 1);
    }

    // Cuts ascend. Returns false if no split is left.
    static bool tighten(CutBox& box) {
        for (std::size_t cut = 1; cut < box.low.size(); ++cut)
            box.low[cut] = std::max(box.low[cut], box.low[cut - 1] + 1);
        for (std::size_t cut = box.low.size() - 1; cut-- > 0;)
            box.high[cut] = std::min(box.high[cut], box.high[cut + 1] - 1);
        for (std::size_t cut = 0; cut < box.low.size(); ++cut)
            if (box.low[cut] > box.high[cut])
                return false;
        return true;
    }

    const SplitTimes& splits_;
    const std::shared_ptr<SplitTimes::Scratch> scratch_;
    double limit_, shortest_;  // shortest_: the least longest time of the splits seen, at most the limit
    Deadline& deadline_;
    std::priority_queue<BoundedBox> open_;
    std::int64_t looked_ = 0;
};

}  // namespace

Ns bound_of_devices(const Plan& plan, const StageBounds& bounds, const StageSpace& space, const Cluster& cluster,
                    Ns limit, int effort, std::int64_t& looked, Deadline& deadline) {
    const SplitTimes splits(plan, bounds, space, cluster, limit, deadline);
    looked += splits.numbers() / 16;
    if (splits.too_many())
        return 0;
    Boxes boxes(splits, static_cast<double>(limit), deadline);
    const double bound = boxes.bound(effort * kUsualNumbers);
    looked += boxes.looked() / kNumbersPerTask;
    // The parts are rounded. Splits with a piece that was left out take at least `limit`.
    return bound >= static_cast<double>(limit) ? limit : std::clamp<Ns>(static_cast<Ns>(bound * (1 - 1e-6)), 0, limit);
}

}  // namespace pw
