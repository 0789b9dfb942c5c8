// Do plans on four shares of a GPU give the bits of one device that does one task at a time? ResNet-50, three steps,
// every kind of schedule over both transports and as graphs. One process: the GPU is opened once.
//
//     gpu_identity [--seconds 120]          after that nothing more is begun
//                  [--precision bf16]       otherwise fp32, then bf16
#include "bench/gpu/measuring.h"
#include "exec/engine/mailbox.h"
#include "exec/execute.h"
#include "exec/oracle.h"
#include "job/load.h"
#include "schedules/orders/schedule.h"
#include "tests/support/temporary_folder.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <array>
#include <deque>

namespace pw {
namespace {

constexpr const char* kConfig = R"(
workload: {model: resnet50, image_size: 64, classes: 10}
cluster: {devices: 4}
pipeline: {schedule: 1f1b, split: auto, micro_batches: 8, micro_batch_size: 4}
training: {steps: 3, learning_rate: 0.002, momentum: 0.9, seed: 1}
run: {backend: cuda, deterministic: true}
)";

struct Way {
    const char* name;
    std::vector<std::string> set;
    bool repeats;  // steps
};
const std::array<Way, 4> kWays = {Way{"threads", {"run.graph=none"}, false}, Way{"nccl", {"run.transport=nccl"}, false},
                                  Way{"task", {"run.graph=task"}, true}, Way{"step", {"run.graph=step"}, true}};

struct Counts {
    int equal = 0, different = 0, failed = 0, left_out = 0;
};

class Comparison {
public:
    explicit Comparison(int seconds) : end_(clock_now() + Ns{seconds} * 1'000'000'000) {}

    Counts compare(const std::vector<std::string>& precisions) {
        fmt::print("{:5} {:10} {:18} {}\n", "", "schedule", "reference", "the same by");
        for (const std::string& precision : precisions)
            for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "pipedream"})
                compare(precision, schedule);
        return counts_;
    }

private:
    void compare(const std::string& precision, const std::string& schedule) {
        const std::vector<std::string> set = {"training.precision=" + precision, "pipeline.schedule=" + schedule};
        RunResult reference;
        if (!attempt([&] { reference = run(oracle_of(job_of(set)), {}); }, fmt::format("{} {}", precision, schedule)))
            return;
        std::string line;
        for (const Way& way : kWays) {
            if (schedule_named(schedule).asynchronous() && way.repeats)
                continue;  // it has no steps to launch as a graph
            std::vector<std::string> own = set;
            own.insert(own.end(), way.set.begin(), way.set.end());
            const std::string name = fmt::format("{} {} {}", precision, schedule, way.name);
            (void)attempt(
                [&] {
                    const RunResult got = run(job_of(own), {});
                    const bool same = got.weights_hash == reference.weights_hash && got.losses == reference.losses;
                    ++(same ? counts_.equal : counts_.different);
                    line += same ? fmt::format(" {}", way.name)
                                 : fmt::format(" {}: {} NOT EQUAL;", way.name, got.weights_hash);
                },
                name);
        }
        fmt::print("{:5} {:10} {:18}{}\n", precision, schedule, reference.weights_hash, line);
    }

    template <class Work>
    bool attempt(Work work, const std::string& name) {
        if (clock_now() > end_) {
            fmt::print("left out: {}\n", name);
            ++counts_.left_out;
            return false;
        }
        try {
            work();
            return true;
        } catch (const std::exception& error) {
            fmt::print("failed: {}: {}\n", name, error.what());
            ++counts_.failed;
            return false;
        }
    }

    // It stays: the thread of a device that fell silent may still use it.
    const Job& job_of(const std::vector<std::string>& set) {
        Notices notices;
        return kept_.emplace_back(make_job(load_config(file_, set), notices));
    }

    TemporaryFolder folder_;
    std::string file_ = folder_.write("config.yaml", kConfig);
    std::deque<Job> kept_;
    Counts counts_;
    Ns end_;
};

int measure(Arguments& arguments) {
    const int seconds = arguments.number("--seconds", 120);
    const std::string precision = arguments.text("--precision", "");
    arguments.done();
    static Comparison comparison(seconds);  // outlives silent threads
    const Counts counts =
        comparison.compare(precision.empty() ? std::vector<std::string>{"fp32", "bf16"} : std::vector{precision});
    fmt::print("{} equal, {} different, {} failed, {} left out\n", counts.equal, counts.different, counts.failed,
               counts.left_out);
    return shown(counts.equal > 0 && counts.different + counts.failed + counts.left_out == 0,
                 "every schedule, transport and graph gives the reference's weights and losses");
}

}  // namespace
}  // namespace pw

int main(int count, char** values) { return pw::measured(count, values, 300, pw::measure); }
