// Runs that take turns on the cores of this machine, some steps each: what drifts in the meantime drifts for all alike.
#pragma once

#include "exec/execute.h"

#include <functional>
#include <vector>

namespace pw {

struct TurnTaker {
    const Job* job;
    RunOptions options = {};
    int every = 1;  // an asynchronous job, which is a single step, runs whole in one of this many turns
};

// Returns what each has run: one result, or one per run of an asynchronous job. All keep their memory in the meantime.
// Once `should_stop` of a taker's options has ended its run, every other one ends after its next step, and those that
// have not begun have no result.
// `between` is called when nobody runs: before the first turn, between two, and after the last. Throws what a run
// throws. Ranks call it together: since each does the same in the same order, their turns are in step.
std::vector<std::vector<RunResult>> run_in_turns(const std::vector<TurnTaker>& takers, int turns,
                                                 const std::function<void()>& between);

// Returns the number of turns of `steps` steps when each turn has two or more: the first step of a turn finds caches
// that others have filled, and differs from the later ones.
int turns_of(int steps, int wanted);
// Tells whether an asynchronous job runs in a turn: in the middle one of each `every` turns.
bool runs_in_turn(int turn, int turns, int every);
// Tells whether a step is the first of its turn. Steps are shared out evenly.
bool begins_turn(int step, int steps, int turns);

}  // namespace pw
