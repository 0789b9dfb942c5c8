// A scenario: one plan on some ranks of a virtual world, a fault, and the permitted outcomes. A seed determines all
// of it.
#pragma once

#include "job/job.h"
#include "workloads/units.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pw {

inline constexpr Ns kTimeout = 20'000'000;  // run.timeout of all subjects

// A plan, and the results of its run in one process without faults.
struct Subject {
    std::string name;
    Job job;                              // for ranks
    std::vector<std::string> hash_after;  // of the weights, by steps
    Ns duration = 0;
};
std::vector<Subject> make_subjects();

struct Judgement {
    std::vector<std::string> wrong;  // violations; empty if all is correct
    std::string what;                // the fault: "crash", "nothing", ...
    std::string subject;
    bool completed = false;         // rank 0 has the right weights
    std::uint64_t fingerprint = 0;  // of all events
    Ns lasted = 0;                  // in the world's time
};
// With `prints` it prints the events.
Judgement judge(const std::vector<Subject>& subjects, std::uint64_t seed, bool prints);

}  // namespace pw
