// Search problems and simulators may outlive the objects that they are made from; the address sanitizer finds
// references to such objects.
#include "job/build.h"
#include "job/job.h"
#include "job/load.h"
#include "report/predict.h"
#include "search/plans/makespan.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <memory>

namespace pw {
namespace {

std::unique_ptr<Config> two_devices() {
    const TemporaryFolder folder;
    return std::make_unique<Config>(load_config(folder.write("config.yaml",
                                                             "workload: {model: mlp}\n"
                                                             "cluster: {devices: 2}\n"
                                                             "pipeline: {schedule: 1f1b, micro_batches: 4}\n"
                                                             "search: {schedules: [1f1b], mini_batch: 8}\n"
                                                             "run: {backend: emulated}\n"),
                                                {}));
}

TEST(Lifetimes, ASearchProblemOwnsConfigAndModel) {
    std::unique_ptr<Config> config = two_devices();
    auto model = std::make_unique<Model>(build_model(*config));
    const Ns best = search_plans(problem_of(*config, *model)).best()->step_time;
    const SearchProblem problem = problem_of(*config, *model);
    config.reset();
    model.reset();
    EXPECT_EQ(search_plans(problem).best()->step_time, best);
}

TEST(Lifetimes, ASimulatorOwnsItsPlan) {
    Notices notices;
    auto job = std::make_unique<Job>(make_job(*two_devices(), notices));
    const Costs costs = job->costs;
    const TransferMode mode = simulated_mode(*job);
    const Ns step = predict_numbers(*job).metrics.step_time;
    Simulator of_job = simulator_of(*job), of_plan(job->plan, mode);
    job.reset();
    EXPECT_EQ(of_job.step_time(costs), step);
    EXPECT_EQ(of_plan.step_time(costs), step);
}

}  // namespace
}  // namespace pw
