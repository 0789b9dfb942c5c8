#include "search/trial.h"

#include "search/longest_time.h"
#include "workloads/bounded.h"

#include <algorithm>
#include <numeric>

namespace pw {

SizedModel::SizedModel(const SearchProblem& problem, const StageSpace& space, int samples)
    : profile(problem.profile_at(samples)),
      costs(problem.model, profile, samples),
      fused(problem.model.layers, space, costs, false),
      split(problem.model.layers, space, costs, true) {}

Trial::Trial(const SearchProblem& problem, const StageSpace& space, const SizedModel& model, PlanChoice choice)
    : problem_(problem), space_(space), model_(model) {
    found_.choice = std::move(choice);
}

Judge& Trial::judge() {
    if (!judge_)
        judge_ = std::make_unique<Judge>(problem_, found_.choice, model_.profile, model_.costs);
    return *judge_;
}

void Trial::open() {
    const Plan& plan = judge().plan();
    const std::vector<DeviceConfig>& devices = judge().config().cluster.devices;
    refuse_long_splits(plan, model_.costs, problem_.model.layers, judge().config(), model_.profile);
    pieces_ = &model_.pieces(splits_backward(plan));
    plan_bound_.emplace(plan, model_.profile.dispatch.median, devices);
    limited_ = std::any_of(devices.begin(), devices.end(),
                           [](const DeviceConfig& device) { return device.memory != kUnlimited; });
    same_speed_ = std::all_of(devices.begin(), devices.end(),
                              [&](const DeviceConfig& device) { return device.speed == devices.front().speed; });
    for (const std::vector<Task>& order : plan.order)
        tasks_of_plan_ += std::ssize(order);
    bounds_ = least_bottleneck([this](int stage, const Piece& piece) { return bound_of(stage, piece); });
    found_.lower_bound = std::max(plan_bound_->of_work(*pieces_), plan_bound_->of_path(*pieces_));
    if (space_.complete())
        found_.lower_bound = std::max(found_.lower_bound, bounds_[0][0]);
    found_.may_fit = found_.lower_bound < kNever;
}

Ns Trial::bound_of_any_order(double speeds) const {
    double own = 0;
    for (const int device : found_.choice.devices)
        own += problem_.config.cluster.devices[device].speed;
    return static_cast<Ns>(static_cast<double>(plan_bound_->of_work(*pieces_)) * own / speeds);
}

Bytes Trial::shortage_of(int stage, const Piece& piece) const {
    if (!limited_)
        return 0;
    const Bytes needs = plan_bound_->memory(stage, piece), has = plan_bound_->available(stage);
    return needs > has ? needs - has : 0;
}

Ns Trial::bound_of(int stage, const Piece& piece) const {
    return shortage_of(stage, piece) > 0 ? kNever : plan_bound_->time(stage, piece);
}

template <class Cost>
Trial::Table Trial::least_bottleneck(Cost cost) const {
    const int stages = found_.choice.stages;
    Table table(static_cast<std::size_t>(stages) + 1, std::vector<Ns>(static_cast<std::size_t>(space_.cuts()), kNever));
    table[stages][space_.whole()] = 0;
    for (int stage = stages - 1; stage >= 0; --stage)
        for (int cut = 0; cut < space_.cuts(); ++cut) {
            if (space_.size_of(cut) < stage || (stage == 0 && cut != 0))
                continue;
            Ns& least = table[stage][cut];
            for (const Piece& piece : pieces_->from(cut))
                if (const Ns rest = table[stage + 1][piece.to]; rest < least)
                    least = std::min(least, std::max(rest, cost(stage, piece)));
        }
    return table;
}

// Among the paths with the least bottleneck the one whose stages cost least, the first ones first.
template <class Cost>
Trial::Cuts Trial::cuts_of(const Table& table, Cost cost) const {
    Cuts cuts = {0};
    for (int stage = 0; stage < found_.choice.stages; ++stage) {
        int next = -1;
        Ns least = kNever;
        for (const Piece& piece : pieces_->from(cuts.back())) {
            if (table[stage + 1][piece.to] > table[0][0])
                continue;
            const Ns own = cost(stage, piece);
            if (own <= table[0][0] && own < least) {
                least = own;
                next = piece.to;
            }
        }
        if (next < 0)
            return {};
        cuts.push_back(next);
    }
    return cuts;
}

void Trial::propose() {
    const auto propose_by = [this](const Table& table, auto cost) {
        if (const Cuts cuts = cuts_of(table, cost); !cuts.empty())
            try_cuts(cuts);
    };
    const auto bound = [this](int stage, const Piece& piece) { return bound_of(stage, piece); };
    const auto work = [this](int stage, const Piece& piece) {
        if (shortage_of(stage, piece) > 0)
            return kNever;
        const auto time = static_cast<double>(piece.forward + piece.backward + piece.weight);
        return bounded(time / judge().config().cluster.devices[plan_bound_->device_of(stage)].speed);
    };
    propose_by(bounds_, bound);
    propose_by(least_bottleneck(work), work);
    if (limited_) {
        const auto shortage = [this](int stage, const Piece& piece) { return shortage_of(stage, piece); };
        propose_by(least_bottleneck(shortage), shortage);
    }
}

bool Trial::try_cuts(const Cuts& cuts) {
    const StageSplit split = space_.split_of(cuts);
    const std::optional<Ns> time = judge().step_time(split);
    ++candidates_;
    spent_ += tasks_of_plan_;
    if (!time || (best_.shortage == 0 && *time >= best_.time))
        return false;
    Value value{0, *time};
    if (limited_) {
        value.shortage = judge().shortage(judge().peaks(split));
        spent_ += 3 * tasks_of_plan_;
    }
    if (value >= best_)
        return false;
    best_ = value;
    cuts_ = cuts;
    found_.split = split;
    found_.step_time = value.time;
    found_.fits = value.shortage == 0;
    return true;
}

// By so many layers, forwards or backwards.
bool Trial::move_cut(std::size_t which, int steps) {
    Cuts cuts = cuts_;
    int& cut = cuts[which];
    for (int step = 0; step < std::abs(steps); ++step) {
        const std::vector<int>& next = steps > 0 ? space_.grown(cut) : space_.shrunk(cut);
        const auto legal = std::find_if(next.begin(), next.end(), [&](int moved) {
            return steps > 0 ? space_.precedes(moved, cuts[which + 1]) : space_.precedes(cuts[which - 1], moved);
        });
        if (legal == next.end())
            return false;
        cut = *legal;
    }
    return try_cuts(cuts);
}

void Trial::climb(std::int64_t tasks, Deadline& deadline) {
    const std::int64_t end = spent_ + tasks;
    const int longest = std::max(1, space_.layers() / (4 * found_.choice.stages));
    for (int stride = longest; stride > 0;) {
        bool better = false;
        for (std::size_t which = 1; which + 1 < cuts_.size(); ++which)
            for (const int steps : {stride, -stride})
                while (spent_ < end && !deadline.passed() && move_cut(which, steps))
                    better = true;
        if (!better)
            stride /= 2;
    }
}

bool Trial::prove(Ns limit, std::int64_t tasks, Deadline& deadline) {
    Descent descent{{0}, std::vector<Load>(found_.choice.devices.size()), limit, spent_ + tasks, deadline};
    return descend(descent, 0);
}

Trial::Load Trial::with(Load load, int stage, const Piece& piece) const {
    if (load.head < 0) {
        load.head = plan_bound_->path(pieces_->least_head(piece.from));
        load.tail = plan_bound_->trains() ? plan_bound_->path(pieces_->least_tail(piece.from)) : 0;
    }
    load.until_last_backward += plan_bound_->until_last_backward(stage, piece);
    load.whole += plan_bound_->whole_time(stage, piece);
    return load;
}

// Of devices with several stages: whether this one can take the piece, and all of them what lies behind it, below the
// limit.
bool Trial::leaves_room(const Descent& descent, int stage, const Piece& piece) const {
    const Ns limit = found_.fits ? std::min(descent.limit, found_.step_time) : descent.limit;
    const int device = plan_bound_->device_of(stage);
    const Load load = with(descent.loads[device], stage, piece);
    if (load.time() >= limit)
        return false;
    Ns room = 0;
    for (int other = 0; other < std::ssize(descent.loads); ++other)
        room += limit - 1 - (other == device ? load : descent.loads[other]).time();
    const std::vector<Piece>& rest = pieces_->from(piece.to);
    const int last = found_.choice.stages - 1;  // it runs R only where all stages do
    return rest.empty() || !same_speed_ || plan_bound_->whole_time(last, rest.back()) <= room;
}

bool Trial::descend(Descent& descent, Ns so_far) {
    const int stage = static_cast<int>(descent.cuts.size()) - 1, cut = descent.cuts.back();
    const auto too_slow = [&](Ns bound) {
        return bound >= descent.limit || (found_.fits && bound >= found_.step_time);
    };
    if (stage == found_.choice.stages) {
        try_cuts(descent.cuts);
        return true;
    }
    std::vector<std::pair<Ns, const Piece*>> steps;  // by bound, then by cut
    for (const Piece& piece : pieces_->from(cut)) {
        const Ns rest = bounds_[stage + 1][piece.to];
        if (rest >= kNever || too_slow(std::max(so_far, rest)))
            continue;
        if (const Ns bound = std::max({so_far, rest, bound_of(stage, piece)}); !too_slow(bound))
            steps.emplace_back(bound, &piece);
    }
    spent_ += std::ssize(pieces_->from(cut));
    std::stable_sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [bound, piece] : steps) {
        if (too_slow(bound) || (shares_devices() && !leaves_room(descent, stage, *piece)))
            continue;
        if (spent_ >= descent.end || descent.deadline.passed())
            return false;
        Load& load = descent.loads[plan_bound_->device_of(stage)];
        const Load before = load;
        load = with(load, stage, *piece);
        descent.cuts.push_back(piece->to);
        const bool complete = descend(descent, bound);
        descent.cuts.pop_back();
        load = before;
        if (!complete)
            return false;
    }
    return true;
}

void Trial::fill_peaks() {
    if (has_plan())
        found_.peaks = judge().peaks(found_.split);
}

Shortage Trial::shortage() {
    const std::vector<Bytes> peaks = judge().peaks(found_.split);
    const std::vector<DeviceConfig>& devices = judge().config().cluster.devices;
    Shortage worst{-1, 0, kUnlimited};
    for (int device = 0; device < std::ssize(devices); ++device) {
        const Bytes needs = peaks[device], has = devices[device].memory;
        if (has != kUnlimited && needs - has > worst.needs - worst.has)
            worst = {judge().plan().shape.stages_of(device).front(), needs, has};
    }
    return worst;
}

}  // namespace pw
