// The setup's keys for the settings that errors of lower floors are about (workloads/setting.h).
#pragma once

#include "job/setup/setup.h"
#include "workloads/error.h"

#include <string>

namespace pw {

std::string key_of(const Setting& setting);  // "cluster.devices[2].speed"

// Returns the key that the file has for training.zero.
std::string key_of_zero(const Setup& setup);
// Returns the first key that the file has of training.types.
std::string key_of_types(const Setup& setup);

// Returns the help of an error with the keys of its settings: "take 8 micro-batches or more (pipeline.micro_batches)".
std::string help_with_keys(const Error& error);
// Returns the error with these keys.
Error with_keys(const Error& error);

// Throws the error (BadInput) at `key` in the setup. `help` is used if the error has no help.
[[noreturn]] void fail_at(const Setup& setup, const std::string& key, const Error& error, const std::string& help = "");

// Calls `act`, and lets an error point at its setting in the setup.
template <class Act>
auto at_its_place(const Setup& setup, Act act) {
    try {
        return act();
    } catch (const Error& error) {
        if (error.settings().empty())
            throw;
        if (error.code() != ExitCode::BadInput)
            throw with_keys(error);
        fail_at(setup, key_of(error.settings().front()), error);
    }
}

}  // namespace pw
