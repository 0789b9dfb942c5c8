// Runs that take turns on the cores of this machine, some steps each: a drift of its speed affects all of them
// alike.
#pragma once

#include "exec/execute.h"

#include <functional>
#include <vector>

namespace pw {

struct TurnTaker {
    const Job* job;
    RunOptions options = {};
    int every = 1;  // an asynchronous job, which is a single step, runs completely in a turn of this many turns
};

// Returns the results of each: a single result, or a result per run of an asynchronous job. All keep their memory
// between turns. After `should_stop` of a taker's options has ended its run, every other run ends after its next
// step. Runs that have not begun have no result.
// `between` is called while no run computes: before the first turn, between two turns, and after the last turn.
// Throws the exception of a run. All ranks call it together: since each does the same in the same order, their
// turns coincide.
std::vector<std::vector<RunResult>> run_in_turns(const std::vector<TurnTaker>& takers, int turns,
                                                 const std::function<void()>& between);

// Returns the number of turns of `steps` steps, `wanted` at most, with two steps or more per turn: the first step
// of a turn finds caches that other runs have filled, and differs from the later steps.
int turns_of(int steps, int wanted);
// Returns whether an asynchronous job runs in a turn: in the middle turn of every `every` turns.
bool runs_in_turn(int turn, int turns, int every);
// Returns whether a step is the first of its turn. The turns divide the steps evenly.
bool begins_turn(int step, int steps, int turns);

}  // namespace pw
