// Configs with extreme numbers are refused, or simulated to a valid trace.
#include "job/build.h"
#include "job/plan.h"
#include "tests/fuzz/fuzz.h"

#include "job/config/config.h"
#include "job/load.h"
#include "schedules/orders/schedule.h"
#include "schedules/trace/trace_json.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/temporary_folder.h"

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <vector>

namespace pw {
namespace {

using Values = std::vector<const char*>;

const Values kTimes{"0 ns", "1 ns", "1 s", "1000000 s", "9223372036 s", "9223372036854775807 ns", "[1 ns, 1000000 s]"};
const Values kSizes{"0 B", "1 B", "10 GB", "1000000 TB", "9223372036854775807 B", "inf", "[1 B, 1000000 TB]"};
const Values kRates{"1 B/s", "0.000001 B/s", "1 GB/s", "1000000 TB/s", "inf"};
const Values kCounts{"0",
                     "1",
                     "2",
                     "3",
                     "4",
                     "8",
                     "64",
                     "65536",
                     "1000000",
                     "2147483647",
                     "2147483648",
                     "9223372036854775807",
                     "9223372036854775808",
                     "-1",
                     "1e999"};
// A million devices is legal, too, but a config with as many takes long to read with sanitizers.
const Values kDevices{"0", "1", "2", "3", "4", "8", "64", "4096", "2147483648", "-1", "1e999"};
Values names_of_schedules() {
    Values names;
    for (const Schedule& schedule : schedules())
        names.push_back(schedule.name.data());  // of a literal
    return names;
}
const Values kSchedules = names_of_schedules();

struct Key {
    const char* name;
    Values values;
};

const Key kKeys[] = {
    {"workload.forward", kTimes},
    {"workload.backward_input", kTimes},
    {"workload.backward_weight", kTimes},
    {"workload.activation", kSizes},
    {"workload.activation_until_weight", kSizes},
    {"workload.output", kSizes},
    {"workload.weights", kSizes},
    {"cluster.memory", kSizes},
    {"cluster.link.latency", kTimes},
    {"cluster.link.bandwidth", kRates},
    {"cluster.devices", kDevices},
    {"cluster.devices", {"[{speed: 0.000001}, {}]", "[{speed: 1000000}, {memory: 1 B}]", "[{speed: 3}, {}]"}},
    {"pipeline.schedule", kSchedules},
    {"pipeline.stages", kCounts},
    {"pipeline.micro_batches", kCounts},
    {"pipeline.micro_batch_size", kCounts},
    {"pipeline.mini_batch", kCounts},
    {"pipeline.replicas", {"2", "3", "4096", "[1, 1]", "[2, 2]", "[1, 3]", "[2]", "[]", "[2147483647, 2147483647]"}},
    {"pipeline.recompute", {"all", "none", "[0]", "[1]", "[2147483647]"}},
    {"pipeline.recompute_saved", {"0", "1", "1000000", "-1"}},
    {"pipeline.recompute_ahead", {"0", "1", "1000000", "-1", "auto"}},
    {"pipeline.weights", {"flush", "stash", "latest", "vertical_sync", "double_buffer"}},
    {"pipeline.group", kCounts},
    {"pipeline.slices", kCounts},
    {"pipeline.drain", {"fifo", "lifo"}},
    {"pipeline.activations", kCounts},
    {"pipeline.aim", {"step", "span"}},
    {"pipeline.effort", {"0.001", "0.01", "0", "-1"}},
    {"training.steps", kCounts},
    {"transfer.receive", {"early", "deferred"}},
    {"transfer.protocol", {"eager", "rendezvous"}},
    {"transfer.eager_limit", kCounts},
    {"transfer.multiprocessors", {"0", "0.06", "0.5"}},
    {"transfer.communicator", {"edge", "direction", "one"}},
};

constexpr const char* kBase = R"(
workload: {model: uniform, forward: 3 us, backward_input: 2 us, backward_weight: 1 us, activation: 1 MB, output: 1 kB}
cluster: {devices: 2, link: {latency: 1 us, bandwidth: 1 GB/s}}
pipeline: {schedule: 1f1b, micro_batches: 4, effort: 0.001}
training: {steps: 3}
)";

// Legal configs that only take long are not simulated.
bool is_small(const Config& config) {
    const double steps = config.training.steps, stages = config.pipeline.stages;
    return stages * config.pipeline.micro_batches * config.pipeline.slices * steps < 800 &&
           config.cluster.devices.size() < 64;
}

}  // namespace

void fuzz_simulate(const std::string& bytes) {
    static const TemporaryFolder folder;
    static const std::string path = folder.write("base.yaml", kBase);
    std::vector<std::string> set;
    for (std::size_t i = 0; i + 1 < bytes.size() && set.size() < 6; i += 2) {
        const Key& key = kKeys[static_cast<unsigned char>(bytes[i]) % std::size(kKeys)];
        set.push_back(
            fmt::format("{}={}", key.name, key.values[static_cast<unsigned char>(bytes[i + 1]) % key.values.size()]));
    }
    const Config config = load_config(path, set);
    if (!is_small(config))
        return;
    Costs costs = uniform_costs(config);
    costs.cluster = cluster_of(config, {});
    add_settings(costs, config);
    const Plan plan = make_plan(config, {}, config.training.steps);
    Trace trace = simulate(plan, costs, config.transfer);
    trace.label = "predicted";
    trace.micro_batches = config.pipeline.micro_batches;
    trace.micro_batch_size = config.pipeline.micro_batch_size;
    trace.mini_batch = config.pipeline.mini_batch;
    try {
        check_trace(trace, "simulated");
    } catch (const Error&) {
        std::abort();
    }
    const Metrics metrics = metrics_of(trace);
    if (metrics.makespan < 0 || metrics.step_time < 0 || metrics.samples_per_second < 0)
        std::abort();
}

}  // namespace pw
