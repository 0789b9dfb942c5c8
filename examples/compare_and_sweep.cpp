// Which of two configs is faster, and what the second one does with other micro-batches and schedules: `simulate` of
// both and a sweep, in short.
#include "pipewright/report/notes.h"
#include "pipewright/report/report.h"
#include "pipewright/report/sweep.h"
#include "pipewright/workloads/error.h"
#include "pipewright/workloads/units.h"

#include <cstdio>
#include <string>
#include <vector>

namespace {

void print_notes(const pw::Notices& notes) {
    for (const std::string& note : notes)
        std::fprintf(stderr, "note: %s\n", note.c_str());
}

pw::Report predict(const pw::ConfigSource& source) {
    pw::Notices notes;
    const pw::Job job = pw::make_job(source.load_with({}), notes);
    print_notes(notes);
    pw::Report report = pw::predicted_report(job, false);
    std::printf("%s\n  step %s, %.4g samples/s, bubble rate %.1f %%, up to %s on a device: %s\n",
                pw::summary_of(job).c_str(), pw::print_time(report.metrics.step_time).c_str(),
                report.metrics.samples_per_second, 100 * report.metrics.bubble_rate,
                pw::print_bytes(pw::largest_reserved(report)).c_str(), pw::fits(report) ? "fits" : "does not fit");
    return report;
}

// Configs of unlike mini-batches have unlike steps: samples per second say which is faster.
void compare(const pw::ConfigSource& first, const pw::ConfigSource& second) {
    const double rate = predict(first).metrics.samples_per_second, other = predict(second).metrics.samples_per_second;
    const bool first_wins = rate >= other;
    std::printf("faster: %s, by %.1f %%\n\n", (first_wins ? first : second).path.c_str(),
                100 * (first_wins ? rate / other - 1 : other / rate - 1));
}

void sweep(const pw::ConfigSource& source) {
    const std::vector<pw::SweepAxis> axes = {{"pipeline.micro_batches", {"4", "8", "16"}},
                                             {"pipeline.schedule", {"gpipe", "1f1b", "zb-h1"}}};
    pw::Hooks hooks;
    hooks.progress = [](const std::string& state) { std::fprintf(stderr, "%s\n", state.c_str()); };
    const pw::Sweep sweep = pw::simulate_sweep(source, axes, hooks);
    print_notes(sweep.notes);
    std::printf("%-15s%-10s%-12s%-12s%s\n", "micro-batches", "schedule", "step", "samples/s", "fits");
    for (const pw::SweepPoint& point : sweep.points) {
        std::printf("%-15s%-10s", point.texts[0].c_str(), point.texts[1].c_str());
        if (point.report)
            std::printf("%-12s%-12.4g%s\n", pw::print_time(point.report->metrics.step_time).c_str(),
                        point.report->metrics.samples_per_second, pw::fits(*point.report) ? "yes" : "no");
        else
            std::printf("%s\n", pw::first_line(*point.error).c_str());
    }
    std::printf("best: %s\n", sweep.best ? pw::setting_of(sweep, *sweep.best).c_str() : "none fits");
}

}  // namespace

int main(int count, char** arguments) try {
    if (count != 3)
        pw::fail("usage: compare_and_sweep FIRST.yaml SECOND.yaml");
    const pw::ConfigSource first{arguments[1], {}}, second{arguments[2], {}};
    compare(first, second);
    sweep(second);
} catch (const pw::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
}
