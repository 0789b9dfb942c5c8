// Traces of torch.profiler (Kineto): one file for each rank of a pipeline. Tasks are the annotations of PyTorch's
// schedules: `PP:0F1` (the cell of a schedule's CSV), or `Forward 1` and `Backward 1`, whose stage is the rank. Times
// are those of the annotation on the GPU if all tasks have one, else those of the host's thread. Steps are those of
// `ProfilerStep#n`. Other annotations of PyTorch than F, B, I and W are left out: transfers and sums of gradients
// overlap.
#include "schedules/trace/trace_events.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace pw {

namespace {

using nlohmann::json;

constexpr const char* kHelp =
    "record torch.profiler around the steps of one of PyTorch's pipeline schedules, and name the files of all ranks";
constexpr std::string_view kHost = "user_annotation", kGpu = "gpu_user_annotation";
constexpr int kMostStages = 65'536;

struct Annotation {
    Task task;  // stage -1: the stage of the rank
    Ns start, end;
    std::int64_t thread;  // a thread of the host, or a stream of the GPU
    int step = 0;
};

struct RankFile {
    std::string path;
    int rank = 0, world = 1;
    std::vector<Annotation> host, gpu;
    std::vector<Annotation> steps;  // ProfilerStep#n, where n is the step
};

std::optional<int> number_at(std::string_view& text) {
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number < 0 || (text.front() == '0' && end - text.data() > 1))
        return {};
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return number;
}

// Returns the number that follows `beginning` in a name, if nothing follows the number.
std::optional<int> number_after(std::string_view beginning, std::string_view name) {
    if (!name.starts_with(beginning))
        return {};
    name.remove_prefix(beginning.size());
    const std::optional<int> number = number_at(name);
    return name.empty() ? number : std::nullopt;
}

// Returns the task of a name such as "PP:0F1".
std::optional<Task> task_of_cell(std::string_view name) {
    if (!name.starts_with("PP:"))
        return {};
    name.remove_prefix(3);
    const std::optional<int> stage = number_at(name);
    const std::optional<Op> op = op_from(name.substr(0, 1));
    if (!stage || !op || !(op == Op::Forward || is_backward(*op)))
        return {};
    name.remove_prefix(1);
    const std::optional<int> microbatch = number_at(name);
    return microbatch && name.empty() ? std::optional(Task{*op, *stage, *microbatch}) : std::nullopt;
}

std::optional<Task> task_of(std::string_view name) {
    if (const std::optional<int> forward = number_after("Forward ", name))
        return Task{Op::Forward, -1, *forward};
    if (const std::optional<int> backward = number_after("Backward ", name))
        return Task{Op::Backward, -1, *backward};
    return task_of_cell(name);
}

bool is_annotation(const json& event) {
    const auto text_of = [&](const char* key) -> std::string_view {
        const auto found = event.find(key);
        return found != event.end() && found->is_string() ? found->get_ref<const std::string&>() : std::string_view();
    };
    const std::string_view category = text_of("cat");
    return text_of("ph") == "X" && (category == kHost || category == kGpu) && !text_of("name").empty();
}

class RankReader {
public:
    explicit RankReader(const std::string& path) { file_.path = path; }

    RankFile read(int position) {
        const json root =
            parse_events(file_.path, kHelp, [this](const JsonPlace& event, std::size_t) { read_event(event); });
        const JsonPlace place{file_.path, root, "file", kHelp};
        file_.rank = position;
        if (place.has("distributedInfo")) {
            const JsonPlace info = place.object_at("distributedInfo");
            file_.rank = info.has("rank") ? info.small("rank") : position;
            file_.world = info.has("world_size") ? info.small("world_size", 1) : 1;
        }
        const Ns base = place.has("baseTimeNanoseconds") ? place.integer("baseTimeNanoseconds", 0, kMaxTime / 2) : 0;
        for (std::vector<Annotation>* annotations : {&file_.host, &file_.gpu, &file_.steps})
            for (Annotation& annotation : *annotations) {
                annotation.start += base;
                annotation.end += base;
                if (annotation.task.stage < 0)
                    annotation.task.stage = file_.rank;
            }
        if (file_.host.empty())
            fail("trace '{}': none of its events is a task of a pipeline: PP:0F1, Forward 1, Backward 1\n  help: {}",
                 file_.path, kHelp);
        return std::move(file_);
    }

private:
    void read_event(const JsonPlace& event) {
        if (!is_annotation(event.object))
            return;
        const std::string name = event.text("name");
        if (name.starts_with("PP:("))
            fail(
                "trace '{}': {}.name: '{}' is a pair of overlapping tasks, which cannot be read\n  help: record a "
                "schedule without them, such as Schedule1F1B",
                file_.path, event.name, shortened(name, 80));
        const bool on_host = event.text("cat") == kHost;
        const std::optional<int> step = on_host ? number_after("ProfilerStep#", name) : std::nullopt;
        const std::optional<Task> task = task_of(name);
        if (!step && !task)
            return;
        if (task && (task->stage >= kMostStages || task->microbatch == kMaxInt))
            fail("trace '{}': {}.name: '{}', but a plan has at most {} stages\n  help: {}", file_.path, event.name,
                 shortened(name, 80), kMostStages, kHelp);
        const Ns start = event.micros("ts");
        Annotation annotation{task.value_or(Task{}), start, start + event.micros("dur"), 0, step.value_or(0)};
        if (annotation.end > kMaxTime)
            event.reject("dur", "it ends later than {} ns", kMaxTime);
        if (event.has("tid") && event.at("tid").is_number_integer())
            annotation.thread = event.integer("tid", std::numeric_limits<std::int64_t>::min() / 2, kMaxTime);
        (step ? file_.steps : on_host ? file_.host : file_.gpu).push_back(annotation);
    }

    RankFile file_;
};

bool starts_earlier(const Annotation& a, const Annotation& b) { return a.start < b.start; }

// Numbers the steps of the host's annotations: by the profiler's steps if every task is in one, else by how often a
// task has run.
void number_steps(RankFile& file) {
    std::stable_sort(file.host.begin(), file.host.end(), starts_earlier);
    std::stable_sort(file.steps.begin(), file.steps.end(), starts_earlier);
    bool all = true;
    for (Annotation& annotation : file.host) {
        const auto next = std::upper_bound(file.steps.begin(), file.steps.end(), annotation, starts_earlier);
        all = all && next != file.steps.begin() && annotation.start <= std::prev(next)->end;
        if (all)
            annotation.step = std::prev(next)->step;
    }
    std::map<Task, int> runs;
    if (!all)
        for (Annotation& annotation : file.host)
            annotation.step = runs[annotation.task]++;
}

// Keeps the stream on which the tasks run longest: it is the one with their kernels.
void keep_main_stream(std::vector<Annotation>& gpu) {
    std::map<std::int64_t, double> busy;
    for (const Annotation& annotation : gpu)
        busy[annotation.thread] += static_cast<double>(annotation.end - annotation.start);
    if (busy.empty())
        return;
    const auto main =
        std::max_element(busy.begin(), busy.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    std::erase_if(gpu, [&](const Annotation& annotation) { return annotation.thread != main->first; });
}

// Returns a rank's tasks, with the times of the GPU if all of them have one: a host only launches kernels.
std::vector<Annotation> tasks_of(RankFile file) {
    number_steps(file);
    keep_main_stream(file.gpu);
    std::stable_sort(file.gpu.begin(), file.gpu.end(), starts_earlier);
    std::map<Task, std::vector<const Annotation*>> on_gpu;
    for (const Annotation& annotation : file.gpu)
        on_gpu[annotation.task].push_back(&annotation);
    std::map<Task, std::size_t> runs;
    std::vector<Annotation> moved = file.host;
    for (Annotation& annotation : moved) {
        const std::vector<const Annotation*>& there = on_gpu[annotation.task];
        const std::size_t run = runs[annotation.task]++;
        if (run >= there.size())
            return file.host;
        annotation.start = there[run]->start;
        annotation.end = there[run]->end;
    }
    return moved;
}

std::vector<RankFile> read_ranks(const std::vector<std::string>& paths) {
    std::map<int, RankFile> ranks;
    for (std::size_t i = 0; i < paths.size(); ++i) {
        RankFile file = RankReader(paths[i]).read(static_cast<int>(i));
        const auto [other, fresh] = ranks.try_emplace(file.rank, file);
        if (!fresh)
            fail("traces '{}' and '{}' are both of rank {}\n  help: name one file for each rank", other->second.path,
                 file.path, file.rank);
    }
    if (paths.size() == 1 && ranks.begin()->second.world > 1)
        fail(
            "trace '{}' is of rank {} of {}\n  help: name the files of all ranks of the pipeline, as in "
            "rank0.json "
            "rank1.json",
            paths.front(), ranks.begin()->first, ranks.begin()->second.world);
    std::vector<RankFile> files;
    for (auto& [rank, file] : ranks)
        files.push_back(std::move(file));
    return files;
}

bool is_kineto_task(const nlohmann::json& event) {
    return is_annotation(event) && task_of(event.at("name").get_ref<const std::string&>()).has_value();
}

Trace read_kineto(const std::vector<std::string>& paths) {
    Trace trace;
    for (const RankFile& file : read_ranks(paths)) {
        const int device = trace.devices++;
        for (const Annotation& one : tasks_of(file))
            trace.events.push_back({one.step, device, file.rank, one.task, one.start, one.end, 0, -1});
    }
    const auto first = std::min_element(trace.events.begin(), trace.events.end(),
                                        [](const TraceEvent& a, const TraceEvent& b) { return a.start < b.start; });
    const Ns begin = first->start;
    int step = first->step;
    std::set<int> stages;
    for (const TraceEvent& event : trace.events) {
        step = std::min(step, event.step);
        stages.insert(event.task.stage);
    }
    for (int stage = 0; stage < *stages.rbegin(); ++stage)
        if (!stages.contains(stage))
            fail("trace '{}': no file has a task of stage {}\n  help: name the files of all ranks of the pipeline",
                 paths.front(), stage);
    for (TraceEvent& event : trace.events) {
        event.start -= begin;
        event.end -= begin;
        event.step -= step;
    }
    trace.schedule = "foreign";
    complete_from_tasks(trace, paths.front());
    return trace;
}

}  // namespace

extern const TraceForm kKineto{.of_one_rank = true, .is_task = is_kineto_task, .read = read_kineto};

}  // namespace pw
