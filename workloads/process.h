// Processes by host and number, for files that say whose they are.
#pragma once

#include <string>

namespace pw {

std::string host_name();

// Returns whether the process was on this host and is no more. That of another host may be there still.
bool is_gone(const std::string& host, int process);

}  // namespace pw
