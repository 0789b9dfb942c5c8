// Processes by host and number, for files that name their process, and the start of other programs.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace pw {

std::string host_name();

// Returns whether the process was on this host and has ended. A process of another host may still run.
bool is_gone(const std::string& host, int process);

// How another program starts.
struct ChildStart {
    int input, output, errors;       // its standard streams, as descriptors of this process
    int last_signal = SIGKILL;       // it gets this signal when the thread that started it ends, even by SIGKILL
    bool new_session = false;        // it is no part of this process's terminal and group
    const sigset_t* mask = nullptr;  // its blocked signals; null: those of this process
};

// Starts the program `words[0]`, which is searched in PATH, with the remaining words as arguments. Returns 0 and sets
// `child`, or returns the error.
int start_child(const std::vector<std::string>& words, const ChildStart& start, pid_t& child);

}  // namespace pw
