// Small versions of the configs in workloads/configs: each is simulated, runs, and equals its oracle.
#include "sim/simulate.h"
#include "tests/support/execution.h"
#include "tests/support/thoroughness.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace pw {
namespace {

struct Small {
    const char* config;
    std::vector<std::string> set;
};

const std::vector<std::string> kResNet50{"workload.image_size=32", "workload.classes=10",
                                         "training.learning_rate=0.001", "training.steps=2",
                                         "pipeline.micro_batch_size=2"};

// The configs of ResNet-50 run with the same blocks in a narrower, shorter network.
Execution execution_of(const std::string& text, const Small& small) {
    if (text.find("model: resnet50") == std::string::npos)
        return {text.c_str(), small.set};
    return {text.c_str(), small.set, small_resnet()};
}

std::vector<Small> small_configs() {
    return {
        {"t1-mindspore-pipeline", with(kResNet50, {"pipeline.micro_batch_size=4"})},
        {"t1-mindspore-pipeline", with(kResNet50, {"cluster.devices=8", "pipeline.replicas=[4, 4]",
                                                   "pipeline.micro_batches=8", "pipeline.micro_batch_size=1"})},
        {"t2-oneflow-mlp", {"training.steps=3"}},
        {"t3-mindspore-data-parallel", kResNet50},
        {"t3-mindspore-auto-parallel", with(kResNet50, {"cluster.devices=3", "pipeline.stages=3"})},
        {"t4a-naive", kResNet50},
        {"t4b-gpipe", kResNet50},
        {"t4b-gpipe", with(kResNet50, {"pipeline.recompute=all"})},
        {"t4c-1f1b", kResNet50},
        {"t4d-pipedream", kResNet50},
        {"t4e-1f1b-rr", kResNet50},
        {"t4f-split-size", with(kResNet50, {"pipeline.mini_batch=7"})},
        {"t4g-sequential", {"training.steps=3"}},
        {"t4h-pipedream-2bw", kResNet50},
        {"t4h-pipedream-flush", kResNet50},
        {"gpt",
         {"workload.sequence_length=16", "workload.embedding=32", "training.steps=2", "pipeline.micro_batch_size=2"}},
        {"llama",
         {"workload.sequence_length=16", "workload.embedding=32", "training.steps=2", "pipeline.micro_batch_size=2"}},
        {"unet", {"workload.image_size=16", "workload.base_channels=8", "training.steps=2"}},
    };
}

std::filesystem::path folder() { return std::filesystem::path(PIPEWRIGHT_SOURCE_DIR) / "workloads/configs"; }

std::string text_of(const std::string& config) {
    std::ostringstream text;
    text << std::ifstream(folder() / (config + ".yaml")).rdbuf();
    return text.str();
}

TEST(Tutorials, EveryConfigRunsAndEqualsItsOracle) {
    OneIn some(2);
    for (const Small& small : small_configs()) {
        if (!some.picks())
            continue;
        SCOPED_TRACE(small.config);
        const Execution execution = execution_of(text_of(small.config), small);
        const RunResult run = execution.run();
        EXPECT_FALSE(run.losses.empty());
        expect_equal(run, execution.oracle(), small.config);
    }
}

TEST(Tutorials, EveryConfigSimulatesInFullSize) {
    for (const auto& file : std::filesystem::directory_iterator(folder())) {
        const std::string name = file.path().stem();
        if (!name.starts_with('t') && name != "gpt" && name != "llama" && name != "unet")
            continue;
        SCOPED_TRACE(name);
        const Execution execution(text_of(name).c_str(), {"training.steps=4"});
        const Job& job = execution.job();
        const Trace trace = simulate(job.plan, job.costs, job.mode);
        std::size_t tasks = 0;
        for (const std::vector<Task>& order : job.plan.order)
            tasks += order.size();
        EXPECT_EQ(trace.events.size(), tasks);
        std::vector<Ns> busy(static_cast<std::size_t>(trace.devices)), end = busy;
        for (const TraceEvent& event : trace.events)
            if (is_compute(event.task.op)) {
                busy[event.device] += event.end - event.start;
                end[event.device] = std::max(end[event.device], event.end);
            }
        for (int device = 0; device < trace.devices; ++device) {
            EXPECT_GT(busy[device], 0);
            EXPECT_LE(busy[device], end[device]);
        }
    }
}

TEST(Tutorials, EveryConfigIsTried) {
    std::vector<Small> tried = small_configs();
    for (const auto& file : std::filesystem::directory_iterator(folder())) {
        const std::string name = file.path().stem();
        const bool is_tried =
            std::any_of(tried.begin(), tried.end(), [&](const Small& small) { return small.config == name; });
        EXPECT_TRUE(is_tried || name.starts_with("resnet50") || name == "sweep" || name == "zero-bubble-a100")
            << name << " is in no test";
    }
}

}  // namespace
}  // namespace pw
