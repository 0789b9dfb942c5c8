// What a user can change, as errors of floors without a config say it. Errors of floors with a config have its key
// (job/settings.h).
#pragma once

#include <cstdint>

namespace pw {

struct Setting {
    enum class Name : std::uint8_t {
        Devices,
        DeviceSpeed,  // of device `index`
        ComputeRate,
        MemoryBandwidth,
        LinkBandwidth,
        LinkLatency,
        HostLink,
        Dispatcher,
        Stages,
        MicroBatches,
        MicroBatchSize,
        Group,
        Slices,
        StageReplicas,
        Recompute,
        Steps,
        DataPath,
        SequenceLength,
        ForwardTime,
        BackwardInputTime,
        BackwardWeightTime,
        Activations,
        Weights,
        TransferLanes,
        TransferReceive,
        TransferExchange,
        TransferProtocol,
        Last = TransferProtocol,  // the table of keys ends with it
    };
    using enum Name;

    constexpr Setting(Name the_name, int the_index = -1) : name(the_name), index(the_index) {}  // a name is a setting
    bool operator==(const Setting&) const = default;

    Name name;
    int index;
};

}  // namespace pw
