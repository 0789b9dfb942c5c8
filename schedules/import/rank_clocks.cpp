#include "schedules/import/rank_clocks.h"

#include "schedules/trace/trace_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace pw {

namespace {

// A tensor that a task makes for the stage after it, or a gradient for the stage before it.
using Made = std::tuple<int, int, int, bool>;  // step, stage, micro-batch, whether it is a gradient

std::optional<Made> made_by(const TraceEvent& event) {
    const Op op = event.task.op;
    if (op != Op::Forward && !makes_input_gradient(op))
        return {};
    return Made{event.step, event.task.stage, event.task.microbatch, op != Op::Forward};
}

// Returns how far each device is from device 0 over edges with a slack. `backwards` takes the edges from their ends.
std::vector<Ns> distances(const ClockBounds& bounds, const std::vector<Ns>& moves, bool backwards) {
    std::vector<Ns> distance(moves.size(), kUnbounded);
    distance.front() = 0;
    bool changed = true;
    for (std::size_t round = 0; round < moves.size() && changed; ++round) {
        changed = false;
        for (const auto& [ends, bound] : bounds) {
            const auto maker = static_cast<std::size_t>(ends.first), reader = static_cast<std::size_t>(ends.second);
            const Ns slack = moves[reader] - moves[maker] - bound.least;
            const std::size_t from = backwards ? reader : maker, to = backwards ? maker : reader;
            if (distance[from] >= kUnbounded - slack || distance[from] + slack >= distance[to])
                continue;
            distance[to] = distance[from] + slack;
            changed = true;
        }
    }
    return distance;
}

std::string print_end(char sign, Ns time) {
    return time >= kUnbounded ? fmt::format("{}any", sign) : fmt::format("{}{}", sign, print_time(time));
}

}  // namespace

ClockBounds clock_bounds(const std::vector<TraceEvent*>& events) {
    std::map<Made, const TraceEvent*> makers;
    for (const TraceEvent* event : events)
        if (const std::optional<Made> made = made_by(*event))
            makers[*made] = event;
    ClockBounds bounds;
    for (const TraceEvent* event : events) {
        std::optional<Made> input = made_by(*event);
        if (!input)
            continue;
        std::get<1>(*input) += std::get<3>(*input) ? 1 : -1;
        const auto maker = makers.find(*input);
        if (maker == makers.end() || maker->second->device == event->device)
            continue;
        const ClockBound bound{maker->second->end - event->start, maker->second, event};
        const auto [known, fresh] = bounds.try_emplace({maker->second->device, event->device}, bound);
        if (!fresh && known->second.least < bound.least)
            known->second = bound;
    }
    return bounds;
}

std::optional<std::vector<Ns>> clock_moves(const ClockBounds& bounds, int devices) {
    std::vector<Ns> moves(static_cast<std::size_t>(devices), 0);
    for (int round = 0; round <= devices; ++round) {
        bool changed = false;
        for (const auto& [ends, bound] : bounds) {
            const Ns least = moves[static_cast<std::size_t>(ends.first)] + bound.least;
            Ns& move = moves[static_cast<std::size_t>(ends.second)];
            if (least > kMaxTime / 2)
                return {};  // sums of such moves overflow
            changed = changed || move < least;
            move = std::max(move, least);
        }
        if (!changed)
            return moves;
    }
    return {};
}

std::vector<ClockRange> clock_ranges(const ClockBounds& bounds, const std::vector<Ns>& moves) {
    const std::vector<Ns> earlier = distances(bounds, moves, false), later = distances(bounds, moves, true);
    std::vector<ClockRange> ranges;
    for (std::size_t device = 0; device < moves.size(); ++device)
        ranges.push_back({earlier[device], later[device]});
    return ranges;
}

std::string print(const ClockRange& range) {
    return fmt::format("{} to {}", print_end('-', range.earlier), print_end('+', range.later));
}

}  // namespace pw
