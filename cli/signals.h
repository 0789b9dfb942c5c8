// Signals that end a program.
#pragma once

#include <csignal>

namespace pw {

// Returns whether this process ignores the signal, as set by nohup or by a script that started it in the background.
inline bool is_ignored(int signal) {
    struct sigaction action = {};
    return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace pw
