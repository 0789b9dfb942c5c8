// Rank tables of Ascend clusters: the server that holds the device of each rank.
#pragma once

#include <string>
#include <vector>

namespace pw {

// Returns the server of every rank, in the order of the ranks. Reads both forms, with numbers as strings: server_list,
// with the devices of each server, and the older group_list, with an instance per rank. Throws Error (BadInput) with
// the position in the file.
std::vector<std::string> read_rank_table(const std::string& path);

}  // namespace pw
