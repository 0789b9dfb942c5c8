// Are a trace's task intervals right? CUPTI watches a short pipelined run on two shares of a GPU, and its
// records of kernels are matched with the tasks. Both use the host's clock, but a trace starts at 0:
// the run is shifted as a whole until starts and ends fit equally well, and only relative times are compared.
// Every kernel of the steps must be on a compute stream of a device, which keeps it on the device's share: a library's
// own stream would have all multiprocessors. Steps are queued task by task: the kernels of a graph have no tasks.
//
//     gpu_cupti [--model resnet50 | mlp]
#include "bench/gpu/kernel_records.h"
#include "bench/gpu/measuring.h"
#include "exec/execute.h"
#include "job/load.h"
#include "schedules/orders/schedule.h"
#include "tests/support/temporary_folder.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

namespace pw {
namespace {

constexpr const char* kResNet = R"(
workload: {model: resnet50, image_size: 64, classes: 10}
cluster: {devices: 2}
pipeline: {schedule: 1f1b, split: [layer3.0], micro_batches: 8, micro_batch_size: 32}
training: {steps: 5, learning_rate: 0.001, seed: 1}
run: {backend: cuda, precision: bf16, graph: none}
)";

constexpr const char* kMlp = R"(
workload: {model: mlp, image_size: 32}
cluster: {devices: 2}
pipeline: {schedule: 1f1b, split: even, micro_batches: 8, micro_batch_size: 256}
training: {steps: 5, learning_rate: 0.001, seed: 1}
run: {backend: cuda, precision: fp32, graph: none}
)";

constexpr Ns kTolerance = 5'000;  // CUPTI converts the GPU's times to the host's clock
constexpr Ns kMostMedian = 20'000;
constexpr double kMostOutside = 1;  // percent

constexpr int kMostTried = 1000;  // kernels, of which one begins the first task

using Records = std::vector<const Record*>;  // of one stream, by start

RunResult run_recorded(const char* yaml) {
    const TemporaryFolder folder;
    Notices notices;
    const Job job = make_job(load_config(folder.write("config.yaml", yaml), {}), notices);
    RunOptions options;
    options.progress = [](const Progress&) { flush_records(); };  // before the run's streams are gone
    RunResult result = run(job, options);
    flush_records();
    return result;
}

bool is_work(const TraceEvent& event) { return !is_transfer(event.task.op) && event.task.op != Op::SumGradients; }

// By device, in order of time: the tasks that launch kernels.
std::vector<std::vector<TraceEvent>> tasks_of(const Trace& trace) {
    std::vector<std::vector<TraceEvent>> tasks(static_cast<std::size_t>(trace.devices));
    for (const TraceEvent& event : trace.events)
        if (is_work(event))
            tasks[static_cast<std::size_t>(event.device)].push_back(event);
    for (auto& list : tasks)
        std::ranges::stable_sort(list, {}, &TraceEvent::start);
    return tasks;
}

// The streams with the most kernels: those that compute. Lanes only copy.
std::vector<Records> compute_streams(const std::vector<Record>& records, std::size_t devices) {
    std::map<std::uint64_t, Records> streams;
    std::map<std::uint64_t, std::int64_t> kernels;
    for (const Record& record : records) {
        streams[record.stream].push_back(&record);
        kernels[record.stream] += record.kind == Record::Kind::Kernel ? 1 : 0;
    }
    std::vector<std::pair<std::int64_t, std::uint64_t>> busiest;
    for (const auto& [stream, count] : kernels)
        if (count > 0)
            busiest.emplace_back(-count, stream);
    std::ranges::sort(busiest);
    if (busiest.size() < devices)
        fail_with(ExitCode::RunFailed, "CUPTI recorded kernels of {} streams, but {} devices computed", busiest.size(),
                  devices);
    std::vector<Records> computing;
    for (std::size_t k = 0; k < devices; ++k)
        computing.push_back(streams[busiest[k].second]);
    return computing;
}

// The task whose interval contains the middle of a record; null if none does.
const TraceEvent* task_around(const std::vector<TraceEvent>& tasks, const Record& record, Ns shift) {
    const Ns middle = record.start + (record.end - record.start) / 2 - shift;
    const auto after = std::ranges::upper_bound(tasks, middle, {}, &TraceEvent::start);
    if (after == tasks.begin() || std::prev(after)->end < middle)
        return nullptr;
    return &*std::prev(after);
}

struct Fit {
    std::int64_t inside = -1;
    Ns shift = 0;                  // of the records' clock against the trace's
    std::vector<Records> streams;  // by device
};

// The first task begins with some kernel: the one under which most kernels lie in tasks.
Fit fit_of(const std::vector<std::vector<TraceEvent>>& tasks, const std::vector<Records>& streams) {
    std::vector<std::size_t> order(streams.size());
    std::iota(order.begin(), order.end(), 0);
    Fit best;
    do {
        int tried = 0;
        for (const Record* first : streams[order[0]]) {
            if (first->kind != Record::Kind::Kernel || ++tried > kMostTried)
                continue;
            Fit fit{0, first->start - tasks[0].front().start, {}};
            for (std::size_t device = 0; device < tasks.size(); ++device)
                for (const Record* record : streams[order[device]])
                    fit.inside += task_around(tasks[device], *record, fit.shift) != nullptr ? 1 : 0;
            if (fit.inside <= best.inside)
                continue;
            best = fit;
            for (const std::size_t stream : order)
                best.streams.push_back(streams[stream]);
        }
    } while (std::ranges::next_permutation(order).found);
    return best;
}

// The distance of a task's events from its work, before the shift is subtracted.
struct Gap {
    const TraceEvent* task;
    Ns at_start, at_end;
};

std::vector<Gap> gaps_of(const std::vector<std::vector<TraceEvent>>& tasks, const Fit& fit) {
    struct Ends {
        Ns first, last;
    };
    std::vector<Gap> gaps;
    for (std::size_t device = 0; device < tasks.size(); ++device) {
        std::map<const TraceEvent*, Ends> ends;
        for (const Record* record : fit.streams[device])
            if (const TraceEvent* task = task_around(tasks[device], *record, fit.shift); task != nullptr) {
                Ends& own = ends.try_emplace(task, Ends{record->start, record->end}).first->second;
                own.last = std::max(own.last, record->end);
            }
        for (const auto& [task, own] : ends)
            gaps.push_back({task, own.first - task->start, task->end - own.last});
    }
    return gaps;
}

Ns median(std::vector<Ns> values) {
    if (values.empty())
        return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

template <class Of>
std::vector<Ns> each(const std::vector<Gap>& gaps, Of of) {
    std::vector<Ns> values;
    for (const Gap& gap : gaps)
        values.push_back(of(gap));
    return values;
}

// Starts and ends fit equally well.
Ns balanced(const std::vector<Gap>& gaps) {
    return (median(each(gaps, [](const Gap& gap) { return gap.at_start; })) -
            median(each(gaps, [](const Gap& gap) { return gap.at_end; }))) /
           2;
}

// By name, the kernels on other streams from the first task to the last.
std::map<std::string, int> strangers(const std::vector<Record>& records, const Trace& trace, const Fit& fit) {
    std::map<std::string, int> names;
    Ns last = 0;
    for (const TraceEvent& event : trace.events)
        last = std::max(last, event.end);
    for (const Record& record : records) {
        const bool is_own =
            std::ranges::any_of(fit.streams, [&](const Records& own) { return own.front()->stream == record.stream; });
        if (record.kind == Record::Kind::Kernel && !is_own && record.end - fit.shift >= 0 &&
            record.start - fit.shift <= last)
            ++names[record.name.substr(0, 60)];
    }
    return names;
}

struct Outside {
    std::int64_t inside = 0, sticking_out = 0, between = 0, before_or_after = 0;
    std::map<std::string, int> names;  // of kernels between tasks
};

Outside count_outside(const std::vector<std::vector<TraceEvent>>& tasks, const Fit& fit) {
    Outside counts;
    for (std::size_t device = 0; device < tasks.size(); ++device) {
        const Ns first = tasks[device].front().start, last = tasks[device].back().end;
        for (const Record* record : fit.streams[device]) {
            if (record->kind != Record::Kind::Kernel)
                continue;
            const Ns start = record->start - fit.shift, end = record->end - fit.shift;
            const TraceEvent* task = task_around(tasks[device], *record, fit.shift);
            if (task != nullptr)
                ++(start < task->start - kTolerance || end > task->end + kTolerance ? counts.sticking_out
                                                                                    : counts.inside);
            else if (end < first || start > last)
                ++counts.before_or_after;
            else {
                ++counts.between;
                ++counts.names[record->name.substr(0, 60)];
            }
        }
    }
    return counts;
}

std::string us(Ns time) { return fmt::format("{:.2f}", static_cast<double>(time) * 1e-3); }

void print_row(const std::string& what, const std::vector<Ns>& values) {
    if (!values.empty())
        fmt::print("{:42} {:>10} {:>10} {:>10}\n", what, us(median(values)), us(std::ranges::min(values)),
                   us(std::ranges::max(values)));
}

void print_farthest(std::vector<Gap> gaps, Ns shift) {
    constexpr std::size_t kShown = 3;
    std::ranges::sort(gaps, std::greater(), &Gap::at_start);
    for (std::size_t k = 0; k < std::min(kShown, gaps.size()); ++k)
        fmt::print("  {} us before its first kernel: {} of device {} in step {}\n", us(gaps[k].at_start - shift),
                   print(gaps[k].task->task), gaps[k].task->device, gaps[k].task->step);
}

void print_steps(const std::vector<Gap>& gaps, Ns shift, int steps) {
    fmt::print(
        "\nEvents are read on the host's clock, which is calibrated anew in every step. Shift of a step against\n"
        "that of the run, in us:");
    for (int step = 0; step < steps; ++step) {
        std::vector<Gap> own;
        std::ranges::copy_if(gaps, std::back_inserter(own), [&](const Gap& gap) { return gap.task->step == step; });
        if (!own.empty())
            fmt::print(" {}", us(balanced(own) - shift));
    }
    fmt::print("\n");
}

void print_counts(const Outside& counts) {
    fmt::print(
        "\nkernels: {} in tasks, {} beyond a task's ends by more than {} us, {} between tasks, {} before the "
        "first or after the last\n",
        counts.inside, counts.sticking_out, us(kTolerance), counts.between, counts.before_or_after);
    for (const auto& [name, count] : counts.names)
        fmt::print("  between tasks: {} times {}\n", count, name);
}

int compare(const Trace& trace, const std::vector<Record>& records) {
    auto tasks = tasks_of(trace);
    Fit fit = fit_of(tasks, compute_streams(records, tasks.size()));
    for (auto& list : tasks)  // the first step loads kernels and times plans
        std::erase_if(list, [](const TraceEvent& task) { return task.step == 0; });
    std::vector<Gap> gaps = gaps_of(tasks, fit);
    fit.shift = balanced(gaps);

    std::size_t all = 0;
    for (const auto& list : tasks)
        all += list.size();
    const auto at_start = each(gaps, [&](const Gap& gap) { return gap.at_start - fit.shift; });
    const auto at_end = each(gaps, [&](const Gap& gap) { return gap.at_end + fit.shift; });
    fmt::print("{} records of CUPTI, {} dropped; {} of {} tasks have kernels\n\n{:42} {:>10} {:>10} {:>10}\n",
               records.size(), dropped_records(), gaps.size(), all, "us, without the first step", "median", "smallest",
               "largest");
    print_row("length of a task", each(gaps, [](const Gap& gap) { return gap.task->end - gap.task->start; }));
    print_row("length, beyond that of its work", each(gaps, [](const Gap& gap) { return gap.at_start + gap.at_end; }));
    print_row("from its start to its first kernel", at_start);
    print_row("from its last kernel to its end", at_end);
    print_farthest(gaps, fit.shift);
    int steps = 0;
    for (const TraceEvent& event : trace.events)
        steps = std::max(steps, event.step + 1);
    print_steps(gaps, fit.shift, steps);
    const Outside counts = count_outside(tasks, fit);
    print_counts(counts);
    const std::map<std::string, int> foreign = strangers(records, trace, fit);
    for (const auto& [name, count] : foreign)
        fmt::print("  on a stream that is no device's: {} times {}\n", count, name);

    const auto wrong = static_cast<double>(counts.between + counts.sticking_out);
    const double outside = 100 * wrong / std::max(1.0, wrong + static_cast<double>(counts.inside));
    const bool fits = !gaps.empty() && gaps.size() == all && median(at_start) <= kMostMedian &&
                      median(at_end) <= kMostMedian && outside <= kMostOutside;
    const int confined = shown(foreign.empty(), "all kernels of the steps ran on the devices' own streams");
    const int matching =
        shown(fits, fmt::format("tasks begin and end with their kernels: {} and {} us apart (median, at most {}), "
                                "and {:.2f} % of the kernels lie elsewhere (at most {:.0f})",
                                us(median(at_start)), us(median(at_end)), us(kMostMedian), outside, kMostOutside));
    return std::max(confined, matching);
}

int measure(Arguments& arguments) {
    const std::string model = arguments.text("--model", "resnet50");
    arguments.done();
    if (model != "resnet50" && model != "mlp")
        fail("--model {}: use resnet50 or mlp", model);
    start_recording();
    const RunResult result = run_recorded(model == "mlp" ? kMlp : kResNet);
    for (const std::string& note : result.notes)
        fmt::print("{}\n", note);
    return compare(result.trace, take_records());
}

}  // namespace
}  // namespace pw

int main(int count, char** values) { return pw::measured(count, values, 150, pw::measure); }
