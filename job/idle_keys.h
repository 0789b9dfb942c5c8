// Keys of a config that have no effect. They are not mistakes, since a file serves several models, schedules and
// commands. A note lists these keys.
#pragma once

#include "job/setup/search_setup.h"
#include "schedules/plan/plan.h"

#include <string>
#include <vector>

namespace pw {

struct IdleKey {
    std::string key;
    std::string why;
};

// Returns the keys that have no effect on a plan of the config. Keys of `search` are for another command.
std::vector<IdleKey> idle_keys(const Setup& setup, const Plan& plan);
// Returns the keys that have no effect on a search, whatever plans it tries.
std::vector<IdleKey> idle_keys_of_search(const SearchSetup& setup);

std::string print(const IdleKey& key);  // "pipeline.group has no effect: 1f1b does not read it"

}  // namespace pw
