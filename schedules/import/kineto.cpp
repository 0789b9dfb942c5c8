// Traces of torch.profiler (Kineto): a file for each rank of a pipeline. Tasks are annotations: `PP:0F1` (the cell of a
// schedule's CSV), which PyTorch's schedules write, or names as in task_names.h, such as `Forward 1`. A task without a
// stage has the place of its rank among the files. If all tasks have an annotation on the GPU, its times are taken.
// Otherwise times are the host's, from the first to the last operator in the annotation that computes: PyTorch waits
// for messages inside the annotation. `ProfilerStep#n` gives the steps. Annotations of transfers and of sums of
// gradients are left out, since they overlap.
#include "schedules/import/recorded_ranks.h"
#include "schedules/import/trace_folder.h"
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
constexpr const char* kTasksOfKineto =
    "annotations PP:0F1, or with names such as Forward 1, 'fwd mb 3 stage 1' or forward_step (torch.profiler)";
constexpr std::string_view kHost = "user_annotation", kGpu = "gpu_user_annotation";

// How a task is named. If a rank has several kinds, the first kind counts: the remaining annotations are around its
// tasks, or parts of them.
enum class NameKind { Cell, Numbered, Counted };

struct Annotation {
    Task task;  // stage -1: the stage of the rank; micro-batch kNotNamed: counted
    Ns start, end;
    std::int64_t thread;  // a thread of the host, or a stream of the GPU
    NameKind kind = NameKind::Cell;
    int chunk = -1;
    int step = 0;
};

enum class Work { Computes, Prepares, Receives, Communicates };

struct Operator {
    std::int64_t thread;
    Ns start, end;
    Work work = Work::Computes;
    bool operator<(const Operator& other) const {
        return std::pair(thread, start) < std::pair(other.thread, other.start);
    }
};

struct RankFile {
    std::string path;
    int rank = 0, world = 1;
    Ns base = 0;       // of all times
    std::string node;  // the name of its host, empty if the file does not name it
    std::vector<Annotation> host, gpu;
    std::vector<Annotation> steps;            // ProfilerStep#n, where n is the step
    std::vector<Operator> operators;          // of the host
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

struct NamedAnnotation {
    Task task;
    NameKind kind;
    int chunk;
};

constexpr std::string_view kStepBeginning = "ProfilerStep#";

std::optional<NamedAnnotation> task_of(std::string_view name, TaskNames& names) {
    if (name.starts_with(kStepBeginning))
        return {};
    const NamedTask named = names.task_in(name);
    if (!named.is_task())
        return {};
    const NameKind kind = name.starts_with("PP:") ? NameKind::Cell
                          : named.microbatch      ? NameKind::Numbered
                                                  : NameKind::Counted;
    return NamedAnnotation{
        {*named.op, named.stage.value_or(-1), named.microbatch.value_or(kNotNamed)}, kind, named.chunk.value_or(-1)};
}

std::string_view text_of(const json& event, const char* key) {
    const auto found = event.find(key);
    return found != event.end() && found->is_string() ? found->get_ref<const std::string&>() : std::string_view();
}

template <std::size_t N>
bool begins_with_one_of(const std::string_view (&beginnings)[N], std::string_view name) {
    return std::any_of(std::begin(beginnings), std::end(beginnings),
                       [&](std::string_view beginning) { return name.starts_with(beginning); });
}

bool is_annotation(const json& event) {
    const std::string_view category = text_of(event, "cat");
    return text_of(event, "ph") == "X" && (category == kHost || category == kGpu) && !text_of(event, "name").empty();
}

// Operators and kernels that move messages, and may wait for them.
bool is_communication(std::string_view name) {
    constexpr std::string_view kBeginnings[] = {"c10d::", "record_param_comms", "nccl", "gloo:", "mpi:", "ucc:"};
    return begins_with_one_of(kBeginnings, name);
}

// Operators that make room for a message or look at tensors in another way: they may precede a receive.
bool only_prepares(std::string_view name) {
    constexpr std::string_view kBeginnings[] = {"aten::empty",      "aten::new_empty", "aten::zero",  "aten::new_zeros",
                                                "aten::fill_",      "aten::detach",    "detach",      "aten::view",
                                                "aten::as_strided", "aten::resize",    "aten::alias", "aten::set_"};
    return begins_with_one_of(kBeginnings, name);
}

Work work_of(std::string_view name) {
    if (is_communication(name))
        return name.find("recv") == name.npos ? Work::Communicates : Work::Receives;
    return only_prepares(name) ? Work::Prepares : Work::Computes;
}

class RankReader {
public:
    RankReader(const std::string& path, TaskNames& names) : names_(names) { file_.path = path; }

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
        file_.node = shortened(text_of(root, "host_name"), kMostHostName);
        if (file_.node.empty())
            file_.node = host_of_worker(file_.path);
        if (place.has("baseTimeNanoseconds"))
            file_.base = place.integer("baseTimeNanoseconds", 0, kMaxTime / 2);
        if (file_.host.empty())
            names_.require_use(file_.path);
        if (file_.host.empty())
            fail("trace '{}': none of its events is a task of a pipeline: {}; {}\n  help: {}", file_.path,
                 kTasksOfKineto, seen_.print(), help_on_annotations());
        keep_first_kind();
        return std::move(file_);
    }

private:
    void read_event(const JsonPlace& event) {
        if (is_annotation(event.object))
            return read_annotation(event);
        const std::string_view category = text_of(event.object, "cat"), name = text_of(event.object, "name");
        if (text_of(event.object, "ph") != "X")
            return;
        if (category == "kernel" && !is_communication(name))
            file_.computed[thread_of(event)] += static_cast<double>(event.micros("dur"));
        else if (category == "cpu_op")
            add_operator(event, work_of(name));
    }

    void add_operator(const JsonPlace& event, Work work) {
        const Ns start = event.micros("ts");
        file_.operators.push_back({thread_of(event), start, start + event.micros("dur"), work});
    }

    void keep_first_kind() {
        NameKind first = NameKind::Counted;
        for (const Annotation& annotation : file_.host)
            first = std::min(first, annotation.kind);
        for (std::vector<Annotation>* list : {&file_.host, &file_.gpu})
            std::erase_if(*list, [&](const Annotation& annotation) { return annotation.kind != first; });
    }

    static std::int64_t thread_of(const JsonPlace& event) {
        if (!event.has("tid") || !event.at("tid").is_number_integer())
            return 0;
        return event.integer("tid", std::numeric_limits<std::int64_t>::min() / 2, kMaxTime);
    }

    void read_annotation(const JsonPlace& event) {
        const std::string name = event.text("name");
        if (name.starts_with("PP:(") && !names_.has_patterns())
            fail(
                "trace '{}': {}.name: '{}' is a pair of overlapping tasks, which cannot be read\n  help: record a "
                "schedule without them, such as Schedule1F1B",
                file_.path, event.name, shortened(name, 80));
        const bool on_host = event.text("cat") == kHost;
        const std::optional<int> step = on_host ? number_after(kStepBeginning, name) : std::nullopt;
        const std::optional<NamedAnnotation> task = task_of(name, names_);
        if (on_host && is_communication(name))
            add_operator(event, work_of(name));
        if (!step && !task)
            return seen_.see(event.object);
        const Ns start = event.micros("ts");
        Annotation annotation{Task{}, start, start + event.micros("dur"), thread_of(event)};
        annotation.step = step.value_or(0);
        if (task) {
            annotation.task = task->task;
            annotation.kind = task->kind;
            annotation.chunk = task->chunk;
        }
        if (annotation.end > kMaxTime)
            event.reject("dur", "it ends later than {} ns", kMaxTime);
        (step ? file_.steps : on_host ? file_.host : file_.gpu).push_back(annotation);
    }

    TaskNames& names_;
    RankFile file_;
    SeenNames seen_;
};

bool starts_earlier(const Annotation& a, const Annotation& b) { return a.start < b.start; }

// Sets the steps of the host's annotations to the profiler's steps. Returns whether every task is in a step, and in
// each step only once.
bool number_steps(RankFile& file) {
    std::stable_sort(file.host.begin(), file.host.end(), starts_earlier);
    std::stable_sort(file.steps.begin(), file.steps.end(), starts_earlier);
    std::set<std::pair<int, Task>> seen;
    for (Annotation& annotation : file.host) {
        const auto next = std::upper_bound(file.steps.begin(), file.steps.end(), annotation, starts_earlier);
        if (next == file.steps.begin() || annotation.start > std::prev(next)->end)
            return false;
        annotation.step = std::prev(next)->step;
        const bool fresh = seen.emplace(annotation.step, annotation.task).second;
        if (!fresh && annotation.kind != NameKind::Counted)
            return false;
    }
    return true;
}

// Keeps the stream that computes most, or without kernels the stream on which tasks run longest. The rest have
// messages.
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

// The operators of the host in each task.
class OperatorsOfTasks {
public:
    explicit OperatorsOfTasks(RankFile& file) : file_(file) { std::sort(file.operators.begin(), file.operators.end()); }

    // Keeps the part that computes. Leaves out the communication before it (waiting for messages) and after it
    // (sending). A task without operators takes no time if passes like it have operators: the first stage's I.
    void keep() {
        std::set<bool> with_operators;  // whether it is a forward
        for (Annotation& annotation : file_.host)
            if (cut(annotation))
                with_operators.insert(annotation.task.op == Op::Forward);
            else
                without_.push_back(&annotation);
        for (Annotation* annotation : without_)
            if (with_operators.contains(annotation->task.op == Op::Forward))
                annotation->start = annotation->end;
    }

    // Returns how many tasks contain receives after they have begun to compute.
    std::size_t count_with_receives() const {
        std::size_t count = 0;
        for (const Annotation& annotation : file_.host) {
            bool receives = false;
            for_each_in(annotation, [&](const Operator& one) {
                receives = receives || (one.work == Work::Receives && one.start < annotation.end);
            });
            count += receives ? 1 : 0;
        }
        return count;
    }

private:
    template <class Do>
    void for_each_in(const Annotation& annotation, Do act) const {
        auto next = std::lower_bound(file_.operators.begin(), file_.operators.end(),
                                     Operator{annotation.thread, annotation.start, 0});
        for (; next != file_.operators.end() && next->thread == annotation.thread && next->start <= annotation.end;
             ++next)
            act(*next);
    }

    // Returns whether the annotation has operators. An operator that only prepares counts as computing: not before a
    // receive, and not after a send.
    bool cut(Annotation& annotation) const {
        Ns start = -1, end = -1;
        bool computes = false, communicates = false;
        for_each_in(annotation, [&](const Operator& one) {
            if (one.work == Work::Receives || one.work == Work::Communicates) {
                communicates = true;
                start = computes ? start : -1;
                return;
            }
            computes = computes || one.work == Work::Computes;
            communicates = communicates && one.work == Work::Prepares && start >= 0;
            if (!communicates)
                end = std::max(start < 0 ? one.end : end, one.end);
            start = start < 0 ? one.start : start;
        });
        if (start < 0)
            return false;
        annotation.start = start;
        annotation.end = std::clamp(end, start, std::max(start, annotation.end));
        return true;
    }

    RankFile& file_;
    std::vector<Annotation*> without_;
};

// Returns a rank's tasks, with the times of the GPU if all tasks ran there: a host only launches kernels.
// `with_receives` is the number of tasks on the host that may wait for messages while they compute.
std::vector<Annotation> tasks_of(RankFile& file, std::size_t& with_receives) {
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
            OperatorsOfTasks operators(file);
            operators.keep();
            with_receives = operators.count_with_receives();
            return file.host;
        }
        annotation.start = there[run]->start;
        annotation.end = there[run]->end;
    }
    return moved;
}

RecordedRank recorded(RankFile file, int place, std::vector<std::string>& notes) {
    RecordedRank rank{file.path, file.rank, {}, file.node};
    std::size_t with_receives = 0;
    for (const Annotation& one : tasks_of(file, with_receives)) {
        Task task = one.task;
        task.stage = task.stage < 0 ? place : task.stage;
        rank.tasks.push_back({task, file.base + one.start, file.base + one.end, one.step, one.chunk});
    }
    if (with_receives > 0)
        notes.push_back(
            fmt::format("{} tasks of rank {} receive messages after they have begun to compute: what they wait "
                        "for counts as computing",
                        with_receives, rank.rank));
    return rank;
}

Trace read_kineto(const std::vector<std::string>& paths, TaskNames& names, std::vector<std::string>& notes) {
    std::vector<RankFile> files;
    for (std::size_t i = 0; i < paths.size(); ++i)
        files.push_back(RankReader(paths[i], names).read(static_cast<int>(i)));
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
    bool has_steps = true;
    for (RankFile& file : files)
        has_steps = number_steps(file) && has_steps;
    std::vector<RecordedRank> ranks;
    for (RankFile& file : files)
        ranks.push_back(recorded(std::move(file), static_cast<int>(ranks.size()), notes));
    complete_names(ranks, has_steps, notes);
    return trace_of_ranks(std::move(ranks), RankClocks::Running, notes);
}

bool is_kineto_task(const nlohmann::json& event, TaskNames& names) {
    return is_annotation(event) && task_of(event.at("name").get_ref<const std::string&>(), names).has_value();
}

}  // namespace

const char* help_on_annotations() {
    return "record the steps of a schedule that annotates its tasks, such as ScheduleGPipe or "
           "ScheduleInterleaved1F1B; Schedule1F1B does not: annotate(stage) in bench/pytorch_traces.py does it, or "
           "name the tasks with torch.profiler.record_function, as in 'fwd mb 3 stage 1'; names of your own: "
           "pipewright "
           "import --task 'fwd_mb{mb}_stage{stage}'";
}

extern const TraceForm kKineto{.tasks = kTasksOfKineto,
                               .of_one_rank = true,
                               .names_tasks = true,
                               .is_task = is_kineto_task,
                               .is_file = nullptr,
                               .read = read_kineto};

}  // namespace pw
