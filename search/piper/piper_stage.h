// The evaluation of a stage of a Piper split.
#pragma once

#include "search/piper/piper_instance.h"
#include "search/piper/recompute_choice.h"

#include <array>
#include <vector>

namespace pw {

enum class PiperGoal {
    Part,    // least time, as if layers could be recomputed in part: a lower bound
    Greedy,  // least time, where the cheapest layers per byte are recomputed
    Least,   // least time
    Memory,  // least memory, whatever the time
};

// The layers of a stage with the options to run them for a tensor degree and a number of replicas.
class PiperStage {
public:
    // `own[layer]` marks the stage's layers. Each has options for that degree.
    PiperStage(const PiperInstance& instance, const std::vector<int>& layers, const std::vector<bool>& own, int degree,
               int replicas);

    // Returns the value that the goal minimises, with this many micro-batches in flight. Infinite if the stage does not
    // fit in the memory.
    double least(PiperGoal goal, int in_flight, double memory) const;

    struct Choice {
        double time = 0, memory = 0;
        std::vector<int> recomputed;  // ascending
    };
    Choice choice(PiperGoal goal, int in_flight, double memory) const;

private:
    struct OptionCost {
        double time, memory_each, memory;
        bool recompute;
        double memory_with(int in_flight) const { return memory_each * in_flight + memory; }
    };
    struct Member {
        int layer;
        std::array<OptionCost, 2> options;  // twice the same option if there is one
    };
    static const OptionCost& fastest(const Member& member);
    static const OptionCost& smallest(const Member& member, int in_flight);
    RecomputeChoice savings(int in_flight) const;
    double memory_of_fastest(int in_flight) const;
    double memory_of_smallest(int in_flight) const;

    std::vector<Member> members_;
};

}  // namespace pw
