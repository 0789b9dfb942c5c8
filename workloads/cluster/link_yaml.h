// Links in YAML, as configs and profiles have them.
#pragma once

#include "workloads/cluster/link.h"
#include "workloads/text/yaml.h"

#include <string>

namespace pw {

// Reads how the bandwidth of a link grows with the size of a message, by a formula (`half_size`) or by a table
// (`bandwidths`, which replaces `bandwidth`). Mistakes are noted in the source.
void read_sizes(const Yaml& at, Link& link);

Link read_named_link(const Yaml& at);  // a text, notes a mistake if the text names no link

std::string print_link(const Link& link);  // "bandwidth: 10000000000 B/s, latency: 5000 ns"

}  // namespace pw
