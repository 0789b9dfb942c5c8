// The common parts of the measuring programs: arguments, exit codes, and a deadline.
#pragma once

#include "exec/cuda/device/check.h"
#include "workloads/units.h"

#include <string>
#include <vector>

namespace pw {

// Exit codes in addition to those of workloads/error.h; past its deadline a program ends with PeerSilent.
inline constexpr int kShown = 0, kNotShown = 4, kNoGpu = 77;

// "--name value" and "--flag", each asked for once; then done() refuses the rest.
class Arguments {
public:
    Arguments(int count, char** values) : rest_(values + 1, values + count) {}
    std::string text(const std::string& name, const std::string& otherwise);
    int number(const std::string& name, int otherwise);  // at least 1
    bool flag(const std::string& name);
    void done() const;  // throws Error (BadInput)

private:
    std::vector<std::string> rest_;
};

// Returns the exit code of main(): 77 without a GPU. Ends the program after `seconds`. One GPU is enough: others are
// hidden.
int measured(int count, char** values, unsigned seconds, int (*measure)(Arguments& arguments));

// Throws Error (PeerSilent) when the stream has work left after `timeout`.
void wait_for(cudaStream_t stream, Ns timeout);

int shown(bool really, const std::string& what);  // prints a last line and returns the exit code

}  // namespace pw
