// The keys of results as JSON.
#pragma once

#include "tests/support/cli_rig.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace pw {

inline constexpr const char* kResultKeys[] = {
    "schema_version", "makespan_ns", "span_ns",       "step_time_ns",     "ideal_ns", "bubble_rate",
    "bubble_ratio",   "tasks",       "plan_hash",     "span_bubble_rate", "fits",     "samples_per_second",
    "schedule",       "stages",      "micro_batches", "devices"};
inline constexpr const char* kDeviceKeys[] = {"busy_ns",
                                              "idle_ns",
                                              "peak_in_flight",
                                              "exposed_communication_ns",
                                              "memory",
                                              "peak_in_flight_until_weight",
                                              "weight_versions",
                                              "peak_memory_bytes",
                                              "reserved_memory_bytes"};
inline constexpr const char* kMemoryKeys[] = {"weights",     "stashed_weights", "gradients", "optimizer",
                                              "activations", "inputs",          "workspace", "communication"};

// Checks that a result has all keys of a prediction or a run, and that its numbers agree.
inline void expect_results(const Json& json, std::size_t devices) {
    for (const char* key : kResultKeys)
        EXPECT_TRUE(json.contains(key)) << key;
    for (const auto& [key, value] : json.items())
        if (key.ends_with("_ns")) {
            EXPECT_TRUE(value.is_number_integer()) << key;
        }
    ASSERT_EQ(json["devices"].size(), devices);
    for (const Json& device : json["devices"]) {
        for (const char* key : kDeviceKeys)
            EXPECT_TRUE(device.contains(key)) << key;
        Json sum = 0;
        for (const char* key : kMemoryKeys)
            sum = sum.get<std::int64_t>() + device["memory"].at(key).get<std::int64_t>();
        EXPECT_EQ(device["peak_memory_bytes"], sum);
    }
}

}  // namespace pw
