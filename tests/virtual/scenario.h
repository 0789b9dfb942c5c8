// A scenario: one plan on some ranks of a virtual world, what goes wrong there, and what may come of it. All of it is
// drawn from a seed.
#pragma once

#include "job/job.h"
#include "workloads/units.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pw {

// A plan, and what its run comes to where nothing goes wrong and all devices are in one process.
struct Subject {
    std::string name;
    Job job;                              // for ranks
    std::vector<std::string> hash_after;  // of the weights, by steps
    Ns duration = 0;
};
std::vector<Subject> make_subjects();

struct Judgement {
    std::vector<std::string> wrong;  // none: all was as it must be
    std::string what;                // "crash", "nothing", ..: what went wrong there
    std::string subject;
    bool completed = false;         // rank 0 has the right weights
    std::uint64_t fingerprint = 0;  // of all that happened
    Ns lasted = 0;                  // of the world's time
};
// `tells` prints what happens.
Judgement judge(const std::vector<Subject>& subjects, std::uint64_t seed, bool tells);

}  // namespace pw
