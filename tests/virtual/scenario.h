// A scenario: one plan on some ranks of a virtual world, what goes wrong there, and the outcomes that are allowed. A
// seed determines all of it.
#pragma once

#include "job/job.h"
#include "workloads/units.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pw {

// A plan, and the result of its run when nothing goes wrong and all devices are in one process.
struct Subject {
    std::string name;
    Job job;                              // for ranks
    std::vector<std::string> hash_after;  // of the weights, by the number of steps
    Ns duration = 0;
};
std::vector<Subject> make_subjects();

struct Judgement {
    std::vector<std::string> wrong;  // empty: everything was as it must be
    std::string what;                // what went wrong there: "crash", "nothing", ..
    std::string subject;
    bool completed = false;         // rank 0 has the right weights
    std::uint64_t fingerprint = 0;  // of all events
    Ns lasted = 0;                  // in the world's time
};
// `verbose` prints the events.
Judgement judge(const std::vector<Subject>& subjects, std::uint64_t seed, bool verbose);

}  // namespace pw
