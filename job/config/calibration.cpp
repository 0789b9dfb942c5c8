// The block `calibration`.
#include "job/config/blocks.h"

namespace pw {
namespace {

constexpr auto kCalibration = &Config::calibration;
constexpr double kLeastFactor = 0.01, kLargestFactor = 100;

template <auto member>
constexpr KeyValue<Config> factor_key() {
    return number_key<kCalibration, member>(kLeastFactor, kLargestFactor);
}

constexpr ConfigKey kCalibrationKeys[] = {
    {"computing", factor_key<&Calibration::computing>(), KeyShown::IfSet, "",
     "how many times as long as predicted kernels take: products, attention, and kernels bound by memory",
     kOfTransformers},
    {"inside", factor_key<&Calibration::inside>(), KeyShown::IfSet, "",
     "the same for messages within a host or a `domain`: latencies are multiplied, bandwidths divided",
     kOfTransformers},
    {"between", factor_key<&Calibration::between>(), KeyShown::IfSet, "",
     "the same for messages between hosts or domains", kOfTransformers},
    {"outside", factor_key<&Calibration::outside>(), KeyShown::IfSet, "",
     "the same for the time outside of kernels: launches, and what a step takes besides kernels and messages",
     kOfTransformers},
    {"runs", integer_key<kCalibration, &Calibration::runs>(0, 1'000'000), KeyShown::IfSet, "",
     "the number of measured runs that set the factors: reports say so", kOfTransformers},
};

void finish_calibration(const Yaml& at, Config& config, KeyReading&) {
    if (config.workload.model.empty() || is_transformer(config))
        return;
    for (const ConfigKey& key : kCalibrationKeys)
        if (at[key.name].present())
            at[key.name].complain(
                fmt::format("'{}' is for transformers, not for model: {}", at[key.name].path(), config.workload.model),
                "remove the key: the times of other models are measured (`pipewright profile`), or written in the "
                "file");
}

}  // namespace

ConfigBlock calibration_block() { return {"calibration", kCalibrationKeys, finish_calibration, BlockShown::IfSet}; }

}  // namespace pw
