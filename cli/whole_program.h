// Runs another program and all its children to their end: none of its processes remains on this host.
#pragma once

#include <string>
#include <vector>

namespace pw {

struct ProgramEnd {
    int code = 0;          // as in a shell: 128 + N after signal N
    bool stopped = false;  // by a signal to this process
    std::string results;   // its stdout
};

// Runs the first of `words`, which is searched in PATH, with the remaining words as arguments, in a session of its own
// and with an empty stdin. The program shares the stderr of this process. The first SIGINT, SIGTERM or SIGHUP is passed
// on to the program, the second kills it. If this process itself is killed, the program gets SIGTERM. After the
// program's end, all processes that it started are killed, whatever process group they are in. Throws Error (RunFailed)
// if the program cannot be started.
ProgramEnd run_whole_program(const std::vector<std::string>& words);

}  // namespace pw
