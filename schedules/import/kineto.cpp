// Traces of torch.profiler (Kineto): one file for each rank of a pipeline. Tasks are the annotations of PyTorch's
// schedules: `PP:0F1` (the cell of a schedule's CSV), or `Forward 1` and `Backward 1`, whose stage is the rank's place
// among the files. Times are those of the annotation on the GPU if all tasks have one. Else they are the host's, from
// the first to the last operator in the annotation that computes: PyTorch waits for messages inside of it. Steps are
// those of `ProfilerStep#n`. Other annotations of PyTorch than F, B, I and W are left out: transfers and sums of
// gradients overlap.
#include "schedules/import/recorded_ranks.h"
#include "schedules/import/trace_form.h"
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
constexpr const char* kTasksOfKineto = "annotations PP:0F1, or Forward 1 and Backward 1 (torch.profiler)";
constexpr std::string_view kHost = "user_annotation", kGpu = "gpu_user_annotation";
constexpr int kMostStages = 65'536;

struct Annotation {
    Task task;  // stage -1: that of the rank
    Ns start, end;
    std::int64_t thread;  // a thread of the host, or a stream of the GPU
    int step = 0;
};

struct Operator {
    std::int64_t thread;
    Ns start, end;
    bool operator<(const Operator& other) const {
        return std::pair(thread, start) < std::pair(other.thread, other.start);
    }
};

struct RankFile {
    std::string path;
    int rank = 0, world = 1;
    Ns base = 0;  // of all times
    std::vector<Annotation> host, gpu;
    std::vector<Annotation> steps;            // ProfilerStep#n, where n is the step
    std::vector<Operator> operators;          // of the host, without communication
    std::map<std::int64_t, double> computed;  // stream of the GPU -> nanoseconds in kernels without communication
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

std::string_view text_of(const json& event, const char* key) {
    const auto found = event.find(key);
    return found != event.end() && found->is_string() ? found->get_ref<const std::string&>() : std::string_view();
}

bool is_annotation(const json& event) {
    const std::string_view category = text_of(event, "cat");
    return text_of(event, "ph") == "X" && (category == kHost || category == kGpu) && !text_of(event, "name").empty();
}

// Operators and kernels that move messages, and may wait for them.
bool is_communication(std::string_view name) {
    constexpr std::string_view kBeginnings[] = {"c10d::", "record_param_comms", "nccl", "gloo:", "mpi:", "ucc:"};
    return std::any_of(std::begin(kBeginnings), std::end(kBeginnings),
                       [&](std::string_view beginning) { return name.starts_with(beginning); });
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
        if (place.has("baseTimeNanoseconds"))
            file_.base = place.integer("baseTimeNanoseconds", 0, kMaxTime / 2);
        if (file_.host.empty())
            fail("trace '{}': none of its events is a task of a pipeline: {}; {}\n  help: {}", file_.path,
                 kTasksOfKineto, seen_.print(), kHelp);
        return std::move(file_);
    }

private:
    void read_event(const JsonPlace& event) {
        if (is_annotation(event.object))
            return read_annotation(event);
        const std::string_view category = text_of(event.object, "cat");
        const bool is_kernel = category == "kernel";
        if ((!is_kernel && category != "cpu_op") || text_of(event.object, "ph") != "X" ||
            is_communication(text_of(event.object, "name")))
            return;
        const Ns start = event.micros("ts"), duration = event.micros("dur");
        if (is_kernel)
            file_.computed[thread_of(event)] += static_cast<double>(duration);
        else
            file_.operators.push_back({thread_of(event), start, start + duration});
    }

    static std::int64_t thread_of(const JsonPlace& event) {
        if (!event.has("tid") || !event.at("tid").is_number_integer())
            return 0;
        return event.integer("tid", std::numeric_limits<std::int64_t>::min() / 2, kMaxTime);
    }

    void read_annotation(const JsonPlace& event) {
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
            return seen_.see(event.object);
        if (task && (task->stage >= kMostStages || task->microbatch == kMaxInt))
            fail("trace '{}': {}.name: '{}', but a plan has at most {} stages\n  help: {}", file_.path, event.name,
                 shortened(name, 80), kMostStages, kHelp);
        const Ns start = event.micros("ts");
        const Annotation annotation{task.value_or(Task{}), start, start + event.micros("dur"), thread_of(event),
                                    step.value_or(0)};
        if (annotation.end > kMaxTime)
            event.reject("dur", "it ends later than {} ns", kMaxTime);
        (step ? file_.steps : on_host ? file_.host : file_.gpu).push_back(annotation);
    }

    RankFile file_;
    SeenNames seen_;
};

bool starts_earlier(const Annotation& a, const Annotation& b) { return a.start < b.start; }

// Numbers the steps of the host's annotations: by the profiler's steps if every task is in one, and in each only once;
// else by how often a task has run.
void number_steps(RankFile& file) {
    std::stable_sort(file.host.begin(), file.host.end(), starts_earlier);
    std::stable_sort(file.steps.begin(), file.steps.end(), starts_earlier);
    bool all = true;
    std::set<std::pair<int, Task>> seen;
    for (Annotation& annotation : file.host) {
        const auto next = std::upper_bound(file.steps.begin(), file.steps.end(), annotation, starts_earlier);
        all = all && next != file.steps.begin() && annotation.start <= std::prev(next)->end;
        if (all)
            annotation.step = std::prev(next)->step;
        all = all && seen.emplace(annotation.step, annotation.task).second;
    }
    std::map<Task, int> runs;
    if (!all)
        for (Annotation& annotation : file.host)
            annotation.step = runs[annotation.task]++;
}

// Keeps the stream that computes most, or without kernels the one on which tasks run longest. Others have messages.
void keep_main_stream(const RankFile& file, std::vector<Annotation>& gpu) {
    std::map<std::int64_t, double> busy = file.computed;
    if (busy.empty())
        for (const Annotation& annotation : gpu)
            busy[annotation.thread] += static_cast<double>(annotation.end - annotation.start);
    if (busy.empty())
        return;
    const auto main =
        std::max_element(busy.begin(), busy.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    std::erase_if(gpu, [&](const Annotation& annotation) { return annotation.thread != main->first; });
}

// Cuts what is before the first operator and after the last one: waiting for messages, and sending.
void keep_operators(RankFile& file) {
    std::sort(file.operators.begin(), file.operators.end());
    for (Annotation& annotation : file.host) {
        const auto first = std::lower_bound(file.operators.begin(), file.operators.end(),
                                            Operator{annotation.thread, annotation.start, 0});
        Ns last = -1;
        for (auto one = first;
             one != file.operators.end() && one->thread == annotation.thread && one->start <= annotation.end; ++one)
            last = std::max(last, one->end);
        if (last < 0)
            continue;
        annotation.start = first->start;
        annotation.end = std::clamp(last, annotation.start, annotation.end);
    }
}

// Returns a rank's tasks, with the times of the GPU if all of them have one: a host only launches kernels.
std::vector<Annotation> tasks_of(RankFile& file) {
    number_steps(file);
    std::vector<Annotation> gpu = file.gpu;
    keep_main_stream(file, gpu);
    std::stable_sort(gpu.begin(), gpu.end(), starts_earlier);
    std::map<Task, std::vector<const Annotation*>> on_gpu;
    for (const Annotation& annotation : gpu)
        on_gpu[annotation.task].push_back(&annotation);
    std::map<Task, std::size_t> runs;
    std::vector<Annotation> moved = file.host;
    for (Annotation& annotation : moved) {
        const std::vector<const Annotation*>& there = on_gpu[annotation.task];
        const std::size_t run = runs[annotation.task]++;
        if (run >= there.size()) {
            keep_operators(file);
            return file.host;
        }
        annotation.start = there[run]->start;
        annotation.end = there[run]->end;
    }
    return moved;
}

RecordedRank recorded(RankFile file, int place) {
    RecordedRank rank{file.path, file.rank, {}};
    for (const Annotation& one : tasks_of(file)) {
        Task task = one.task;
        task.stage = task.stage < 0 ? place : task.stage;
        rank.tasks.push_back({task, file.base + one.start, file.base + one.end, one.step});
    }
    return rank;
}

Trace read_kineto(const std::vector<std::string>& paths, std::vector<std::string>& notes) {
    std::vector<RankFile> files;
    for (std::size_t i = 0; i < paths.size(); ++i)
        files.push_back(RankReader(paths[i]).read(static_cast<int>(i)));
    std::stable_sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    const int world = files.front().world, count = static_cast<int>(files.size());
    if (count == 1 && world > 1)
        fail(
            "trace '{}' is of rank {} of {}\n  help: name the files of all ranks of the pipeline, as in rank0.json "
            "rank1.json",
            paths.front(), files.front().rank, world);
    if (files.front().host.front().task.stage < 0 && count < world)
        notes.push_back(fmt::format("{} ranks ran, and {} files are named: their stages are taken to be 0 to {}", world,
                                    count, count - 1));
    std::vector<RecordedRank> ranks;
    for (RankFile& file : files)
        ranks.push_back(recorded(std::move(file), static_cast<int>(ranks.size())));
    return trace_of_ranks(std::move(ranks), RankClocks::Running, notes);
}

bool is_kineto_task(const nlohmann::json& event) {
    return is_annotation(event) && task_of(event.at("name").get_ref<const std::string&>()).has_value();
}

}  // namespace

extern const TraceForm kKineto{
    .tasks = kTasksOfKineto, .of_one_rank = true, .is_task = is_kineto_task, .is_file = nullptr, .read = read_kineto};

}  // namespace pw
