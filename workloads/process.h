// Processes by host and number, for files that name their process.
#pragma once

#include <string>

namespace pw {

std::string host_name();

// Returns whether the process was on this host and has ended. A process of another host may still run.
bool is_gone(const std::string& host, int process);

}  // namespace pw
