// Another program, run to its end with all that it starts: nothing of it stays on this host.
#pragma once

#include <string>
#include <vector>

namespace pw {

struct ProgramEnd {
    int code = 0;          // as a shell tells it: 128 + N after signal N
    bool stopped = false;  // by a signal to this process
    std::string results;   // what it wrote to stdout
};

// Runs the first of `words`, which is looked for in PATH, with the others as its arguments, in a session of its own and
// with nothing on stdin. Its stderr is that of this process. The first SIGINT, SIGTERM or SIGHUP is handed on to it,
// the second kills it. What it has started and left behind, in whatever process group, is killed when it has ended.
// Throws Error (RunFailed) where it cannot be started.
ProgramEnd run_whole_program(const std::vector<std::string>& words);

}  // namespace pw
