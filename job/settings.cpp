#include "job/settings.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

namespace pw {

namespace {

struct SettingKey {
    Setting::Name name;
    std::string_view key;
};

constexpr SettingKey kSettingKeys[] = {
    {Setting::Devices, "cluster.devices"},
    {Setting::DeviceSpeed, "cluster.devices[{}].speed"},
    {Setting::ComputeRate, "cluster.compute"},
    {Setting::MemoryBandwidth, "cluster.memory_bandwidth"},
    {Setting::LinkBandwidth, "cluster.link.bandwidth"},
    {Setting::LinkLatency, "cluster.link.latency"},
    {Setting::HostLink, "cluster.host_link"},
    {Setting::Dispatcher, "cluster.dispatcher"},
    {Setting::Stages, "pipeline.stages"},
    {Setting::MicroBatches, "pipeline.micro_batches"},
    {Setting::MicroBatchSize, "pipeline.micro_batch_size"},
    {Setting::Group, "pipeline.group"},
    {Setting::Slices, "pipeline.slices"},
    {Setting::StageReplicas, "pipeline.replicas"},
    {Setting::Recompute, "pipeline.recompute"},
    {Setting::Steps, "training.steps"},
    {Setting::DataPath, "workload.path"},
    {Setting::SequenceLength, "workload.sequence_length"},
    {Setting::ForwardTime, "workload.forward"},
    {Setting::BackwardInputTime, "workload.backward_input"},
    {Setting::BackwardWeightTime, "workload.backward_weight"},
    {Setting::Activations, "workload.activation"},
    {Setting::Weights, "workload.weights"},
    {Setting::TransferLanes, "transfer.communicator"},
    {Setting::TransferReceive, "transfer.receive"},
    {Setting::TransferExchange, "transfer.exchange"},
    {Setting::TransferProtocol, "transfer.protocol"},
};

constexpr bool is_in_order() {
    for (std::size_t row = 0; row < std::size(kSettingKeys); ++row)
        if (kSettingKeys[row].name != static_cast<Setting::Name>(row))
            return false;
    return true;
}
static_assert(std::size(kSettingKeys) == static_cast<std::size_t>(Setting::Last) + 1, "every setting has a key");
static_assert(is_in_order(), "the keys are in the order of Setting");

}  // namespace

std::string key_of(const Setting& setting) {
    return fmt::format(fmt::runtime(kSettingKeys[static_cast<std::size_t>(setting.name)].key), setting.index);
}

std::string key_of_zero(const Setup& setup) {
    const bool is_other = setup.places.contains("training.shard_optimizer") && !setup.places.contains("training.zero");
    return is_other ? "training.shard_optimizer" : "training.zero";
}

std::string key_of_types(const Setup& setup) {
    for (const char* key : {"training.weight_type", "training.gradient_type", "training.master_type",
                            "training.momentum_type", "training.variance_type"})
        if (setup.places.contains(key))
            return key;
    return "training.optimizer";
}

std::string help_with_keys(const Error& error) {
    std::vector<std::string> keys;
    for (const Setting& setting : error.settings())
        keys.push_back(key_of(setting));
    return keys.empty() ? error.help() : fmt::format("{} ({})", error.help(), fmt::join(keys, ", "));
}

Error with_keys(const Error& error) {
    const std::string help = help_with_keys(error);
    const std::string key = error.settings().empty() ? "" : key_of(error.settings().front());
    const std::string text = error.help().empty() ? error.fact() : fmt::format("{}\n  help: {}", error.fact(), help);
    return {error.code(), error.fact(), help, key, "", text};
}

void fail_at(const Setup& setup, const std::string& key, const Error& error, const std::string& help) {
    setup.fail_at(key, error.fact(), error.help().empty() ? help : help_with_keys(error));
}

}  // namespace pw
