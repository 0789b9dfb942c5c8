// Which host of a measured trace is slow.
#pragma once

#include "report/json.h"
#include "schedules/trace/trace.h"

#include <string>
#include <vector>

namespace pw {

// What a stage takes for a micro-batch on a host: the sum of its F B I W R, of each device, stage, micro-batch and
// step, without the first step if there are several.
struct HostTimes {
    std::string host;
    std::vector<int> devices;
    Ns lower = 0, median = 0, upper = 0;  // quartiles: half of the times are between the lower and the upper quartile
    bool is_slow = false;                 // by the rule of times_of_hosts()
    bool same_stages = false;             // whether a slow host was compared by stages that are elsewhere, too
    double more = 0;                      // of a slow host: its median over the median elsewhere, less 1
};

// Returns the hosts in the order of their first devices. Empty if fewer than two hosts are known.
//
// A host is slow if, on each of its devices, the lower quartile of each stage is 5 % above the upper quartile of what
// it is compared with. If all of its stages are elsewhere, too, each stage is compared with the same stage there. If
// none of its stages is elsewhere, it is compared with all stages there, and the host needs two devices: a slow device
// alone may have the stage with most layers. In both cases every device and stage needs four times.
std::vector<HostTimes> times_of_hosts(const Trace& trace);

// Says which host is slow and by how much, or that none is told apart. Empty without hosts.
std::string words_on_hosts(const std::vector<HostTimes>& hosts);
std::vector<std::vector<std::string>> rows_of(const std::vector<HostTimes>& hosts);  // with a head
Json to_json(const std::vector<HostTimes>& hosts);

}  // namespace pw
