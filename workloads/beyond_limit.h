// Input that is well-formed, and asks for more than numbers or the machine's memory hold.
#pragma once

#include "workloads/error.h"

#include <string>
#include <utility>

namespace pw {

// This is thrown where no config is at hand; who has one points at `key` in it (Config::fail_at). Without a config, it
// says all it knows.
class BeyondLimit : public Error {
public:
    BeyondLimit(std::string the_key, std::string the_fact, std::string the_help)
        : Error(ExitCode::BadInput, the_fact + "\n  help: " + the_help),
          key(std::move(the_key)),
          fact(std::move(the_fact)),
          help(std::move(the_help)) {}

    std::string key;  // "cluster.link.bandwidth"
    std::string fact, help;
};

// Acts, and tells what goes beyond a limit with its position in the config.
template <class Config, class Act>
auto at_its_place(const Config& config, Act act) {
    try {
        return act();
    } catch (const BeyondLimit& limit) {
        config.fail_at(limit.key, limit.fact, limit.help);
    }
}

}  // namespace pw
