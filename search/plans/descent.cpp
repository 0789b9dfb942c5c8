#include "search/plans/descent.h"

#include "workloads/bounded.h"

#include <algorithm>

namespace pw {

Descent::Descent(const StageBounds& bounds, const CutTable& least, Ns limit, std::int64_t& spent)
    : bounds_(bounds),
      least_(least),
      limit_(limit),
      spent_(spent),
      loads_(static_cast<std::size_t>(bounds.devices())) {}

Descent::Load Descent::with(Load load, int stage, const Piece& piece) const {
    const PlanBound& plan = bounds_.plan();
    if (load.head < 0) {
        load.head = plan.path(bounds_.pieces().least_head(piece.from));
        load.tail = plan.trains() ? plan.path(bounds_.pieces().least_tail(piece.from)) : 0;
    }
    load.until_last_backward += plan.until_last_backward(stage, piece);
    load.whole += plan.whole_time(stage, piece);
    return load;
}

// Returns, for devices with several stages, whether this device can take the piece, and all devices the later pieces,
// below the limit.
bool Descent::leaves_room(int stage, const Piece& piece) const {
    const PlanBound& plan = bounds_.plan();
    const int device = plan.device_of(stage);
    const Load load = with(loads_[device], stage, piece);
    if (std::max(load.in_all(), load.with_way_back()) >= limit_)
        return false;
    const std::vector<Piece>& rest = bounds_.pieces().from(piece.to);
    if (rest.empty() || !bounds_.same_speed())
        return true;
    Ns room = 0, room_on_the_way = 0;  // of all devices
    for (int other = 0; other < std::ssize(loads_); ++other) {
        const Load& has = other == device ? load : loads_[other];
        room = bounded_sum(room, std::max<Ns>(0, limit_ - 1 - has.in_all()));
        room_on_the_way = bounded_sum(room_on_the_way, std::max<Ns>(0, limit_ - 1 - has.with_way_back()));
    }
    const int last = bounds_.stages() - 1, parts = last - stage;  // the last stage runs R only where all stages do
    return plan.whole_time_in_parts(last, rest.back(), parts) <= room &&
           plan.until_last_backwards_in_parts(last, rest.back(), parts) <= room_on_the_way;
}

Descent::Level Descent::next_level(Ns so_far) {
    const int stage = static_cast<int>(cuts_.size()) - 1;
    const std::vector<Piece>& pieces = bounds_.pieces().from(cuts_.back());
    Level level;
    for (const Piece& piece : pieces) {
        const Ns rest = least_[stage + 1][piece.to];
        if (rest >= kNeverFits || std::max(so_far, rest) >= limit_)
            continue;
        if (const Ns bound = std::max({so_far, rest, bounds_.step_time(stage, piece)}); bound < limit_)
            level.steps.emplace_back(bound, &piece);
    }
    spent_ += std::ssize(pieces);
    std::stable_sort(level.steps.begin(), level.steps.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    return level;
}

bool Descent::run(std::int64_t end, Deadline& deadline, const TryCuts& try_cuts) {
    std::vector<Level> levels = {next_level(0)};
    while (!levels.empty()) {
        const int stage = static_cast<int>(levels.size()) - 1;
        Level& level = levels.back();
        Load& load = loads_[bounds_.plan().device_of(stage)];
        if (level.before) {
            cuts_.pop_back();
            load = *std::exchange(level.before, std::nullopt);
        }
        if (level.next == level.steps.size()) {
            levels.pop_back();
            continue;
        }
        const auto [bound, piece] = level.steps[level.next++];
        if (bound >= limit_ || (bounds_.shares_devices() && !leaves_room(stage, *piece)))
            continue;
        if (spent_ >= end || deadline.passed())
            return false;
        level.before = load;
        load = with(load, stage, *piece);
        cuts_.push_back(piece->to);
        if (stage + 1 == bounds_.stages())
            limit_ = std::min(limit_, try_cuts(cuts_));
        else
            levels.push_back(next_level(bound));
    }
    return true;
}

}  // namespace pw
