// A schedule that is in no table: two copies of the model in opposite directions, as in Chimera (Li and Hoefler, 2021,
// arXiv 2107.06925), written by hand. Stage s is on devices s and p - 1 - s; even micro-batches enter at device 0, odd
// ones at the last.
#pragma once

#include "schedules/orders/schedule.h"
#include "workloads/error.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace pw {

// Reads "0F0 0F2 3B1": F, B, I and W of stages below ten.
inline Tasks tasks_in(const std::string& text) {
    Tasks tasks;
    std::istringstream words(text);
    for (std::string word; words >> word;)
        tasks.emplace_back(op_from(word.substr(1, 1)).value(), word[0] - '0', std::atoi(word.c_str() + 2));
    return tasks;
}

// On 4 devices the schedule of Chimera's figure, on 2 devices two such units one after the other, written by hand.
inline std::vector<Tasks> orders_both_ways(const Request& request) {
    if (request.shape.microbatches != 4)
        fail("it has four micro-batches");
    if (request.shape.devices == 2)
        return {tasks_in("0F0 1F1 1B1 0B0 0F2 1F3 1B3 0B2"), tasks_in("0F1 1F0 1B0 0B1 0F3 1F2 1B2 0B3")};
    if (request.shape.devices == 4)
        return {tasks_in("0F0 0F2 3F1 3B1 3F3 3B3 0B0 0B2"), tasks_in("1F0 2F1 1F2 2F3 2B1 1B0 2B3 1B2"),
                tasks_in("1F1 2F0 1F3 2F2 2B0 1B1 2B2 1B3"), tasks_in("0F1 0F3 3F0 3B0 3F2 3B2 0B1 0B3")};
    fail("it has two or four devices");
}

inline const Schedule kBidirectional{
    .name = "both-ways", .summary = "two directions", .placement = kBothDirections, .orders = orders_both_ways};

inline Shape shape_both_ways(int devices) {
    Shape shape;
    shape.devices = shape.stages = devices;
    shape.microbatches = 4;
    return shape;
}

}  // namespace pw
