// The prediction for the plan of a config, and the best plan for the same model and devices: the commands `simulate`
// and `search` in short.
#include "pipewright/job/build.h"
#include "pipewright/job/job.h"
#include "pipewright/job/load.h"
#include "pipewright/report/predict.h"
#include "pipewright/search/plans/makespan.h"
#include "pipewright/sim/metrics.h"
#include "pipewright/workloads/error.h"
#include "pipewright/workloads/units.h"

#include <cstdio>
#include <string>

namespace {

void print_prediction(const pw::Setup& setup) {
    pw::Notices notices;
    const pw::Job job = pw::make_job(setup, notices);
    for (const std::string& notice : notices)
        std::fprintf(stderr, "note: %s\n", notice.c_str());
    const pw::Metrics metrics = pw::metrics_of(pw::predict(job));
    std::printf("%s on %zu devices: step %s, bubble rate %.1f %%\n", job.plan.schedule.c_str(), metrics.devices.size(),
                pw::print_time(metrics.step_time).c_str(), 100 * metrics.bubble_rate);
}

void print_best(const pw::Config& config) {
    const pw::Model model = pw::build_model(config);
    const pw::SearchProblem problem = pw::problem_of(config, model);
    const pw::SearchResult result = pw::search_plans(problem);
    const pw::FoundPlan* best = result.best();
    if (best == nullptr)
        return void(std::puts("no plan fits"));
    std::printf("best: %s, none is faster than %s\n", pw::print(best->choice).c_str(),
                pw::print_time(result.lower_bound).c_str());
    print_prediction(pw::setup_of(problem, *best));
}

}  // namespace

int main(int count, char** arguments) try {
    if (count != 2)
        pw::fail("usage: two_devices CONFIG.yaml");
    const pw::Config config = pw::load_config(arguments[1], {});
    print_prediction(config);
    print_best(config);
} catch (const pw::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
}
