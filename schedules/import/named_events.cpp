// Chrome traces of any program whose events name their tasks, in the name (task_names.h) or in args. In several
// files, each file is a device. In a single file a device is a rank if all names have a rank. Otherwise it is a
// process, or a thread if all tasks are of the same process. A task that names no stage has the device's number as its
// stage.
#include "schedules/import/recorded_ranks.h"
#include "schedules/import/task_names.h"
#include "schedules/import/trace_form.h"
#include "schedules/trace/trace_events.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace pw {

namespace {

using nlohmann::json;

constexpr const char* kNamedTasks =
    "events with names such as F3, 1F3, 'fwd mb 3 stage 1' or forward_step, or with args op, microbatch and stage";

std::optional<int> number_in(const json& args, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
        const auto found = args.find(key);
        if (found == args.end())
            continue;
        if (found->is_number_integer() && *found >= 0 && *found <= kMostNumber)
            return found->get<int>();
        if (found->is_string())
            if (const std::optional<int> number = only_number_in(found->get_ref<const std::string&>()))
                return number;
    }
    return {};
}

// Returns the task of an event, with what its args say before what its name does.
NamedTask named_by(const json& event) {
    NamedTask named;
    if (const auto name = event.find("name"); name != event.end() && name->is_string())
        named = named_in(name->get_ref<const std::string&>());
    const auto args = event.find("args");
    if (args == event.end() || !args->is_object())
        return named;
    if (args->contains("External id") || args->contains("correlation"))  // an operator or a kernel of Kineto's
        return {};
    for (const char* key : {"op", "type", "pass", "kind"})
        if (const auto found = args->find(key); found != args->end() && found->is_string())
            if (const NamedTask other = named_in(found->get_ref<const std::string&>()); other.op) {
                named.op = other.op;
                named.is_word = other.is_word;
            }
    const auto take = [&](std::optional<int>& value, std::initializer_list<const char*> keys) {
        if (const std::optional<int> number = number_in(*args, keys))
            value = number;
    };
    take(named.stage, {"stage", "stage_id", "stage_index", "pipeline_stage", "pp_rank"});
    take(named.microbatch, {"microbatch", "micro_batch", "microbatch_id", "micro_batch_id", "mb", "mb_id", "mb_index"});
    take(named.chunk, {"chunk", "chunk_id", "model_chunk", "model_chunk_id", "vpp_rank"});
    if (!named.microbatch)
        std::swap(named.microbatch, named.chunk);
    take(named.step, {"step", "iteration", "iter"});
    return named;
}

std::string_view phase_of(const json& event) {
    const auto phase = event.find("ph");
    return phase != event.end() && phase->is_string() ? phase->get_ref<const std::string&>() : std::string_view();
}

bool is_named_task(const json& event) {
    const std::string_view phase = phase_of(event);
    if (phase != "X" && phase != "B")
        return false;
    return named_by(event).is_task();
}

class NamedReader {
public:
    using Place = std::pair<std::string, std::string>;  // process and thread
    struct Found {
        Place place;
        NamedTask named;
        Ns start, end;
    };

    std::vector<Found> read(const std::string& path) {
        parse_events(path, help_on_forms(), [this](const JsonPlace& event, std::size_t) { take(event); });
        std::erase_if(found_, [](const Found& task) { return task.end < task.start; });  // without an end
        if (std::any_of(found_.begin(), found_.end(), has_number))  // the rest are parts of tasks, or around them
            std::erase_if(found_, [](const Found& task) { return !has_number(task); });
        std::stable_sort(found_.begin(), found_.end(),
                         [](const Found& a, const Found& b) { return a.start < b.start; });
        return std::move(found_);
    }

private:
    static bool has_number(const Found& task) { return task.named.microbatch.has_value(); }

    void take(const JsonPlace& event) {
        const std::string_view phase = phase_of(event.object);
        const Place place{shown_or_none(event.object, "pid"), shown_or_none(event.object, "tid")};
        if (phase == "E") {
            close(place, event);
        } else if (phase == "B") {
            open_[place].push_back(is_named_task(event.object) ? static_cast<int>(found_.size()) : -1);
            if (open_[place].back() >= 0)
                found_.push_back({place, named_by(event.object), event.micros("ts"), -1});
        } else if (phase == "X" && is_named_task(event.object)) {
            const Ns start = event.micros("ts");
            add_end({place, named_by(event.object), start, 0}, start + event.micros("dur"), event);
        }
    }

    void close(const Place& place, const JsonPlace& event) {
        std::vector<int>& open = open_[place];
        if (open.empty())
            return;
        if (open.back() >= 0) {
            Found& task = found_[static_cast<std::size_t>(open.back())];
            task.end = event.micros("ts");
            if (task.end < task.start)
                event.reject("ts", "the event ends {} ns before it starts", task.start - task.end);
        }
        open.pop_back();
    }

    void add_end(Found task, Ns end, const JsonPlace& event) {
        if (end > kMaxTime)
            event.reject("dur", "it ends later than {} ns", kMaxTime);
        task.end = end;
        found_.push_back(std::move(task));
    }

    // Numbers as texts of the same width, so that they are in their order.
    static std::string shown_or_none(const json& event, const char* key) {
        const auto found = event.find(key);
        if (found == event.end())
            return "";
        return found->is_number_unsigned() ? fmt::format("{:020}", found->get<std::uint64_t>()) : shown(*found);
    }

    std::vector<Found> found_;
    std::map<Place, std::vector<int>> open_;  // B without E: numbers in found_, -1 for other events
};

// Returns the device of each task: a number for each rank, process or thread.
std::vector<int> devices_of(const std::vector<NamedReader::Found>& tasks) {
    std::set<std::string> ranks, processes, threads;
    for (const NamedReader::Found& task : tasks) {
        ranks.insert(task.named.rank ? fmt::format("{:06}", *task.named.rank) : "");
        processes.insert(task.place.first);
        threads.insert(task.place.second);
    }
    const bool by_rank = !ranks.contains(""), by_process = processes.size() > 1;
    const std::set<std::string>& names = by_rank ? ranks : by_process ? processes : threads;
    std::vector<int> devices;
    for (const NamedReader::Found& task : tasks) {
        const std::string name = by_rank      ? fmt::format("{:06}", *task.named.rank)
                                 : by_process ? task.place.first
                                              : task.place.second;
        devices.push_back(static_cast<int>(std::distance(names.begin(), names.find(name))));
    }
    return devices;
}

void add_tasks(const std::string& path, const std::vector<NamedReader::Found>& tasks, const std::vector<int>& devices,
               std::vector<RecordedRank>& ranks) {
    std::map<int, RecordedRank> added;
    for (std::size_t k = 0; k < tasks.size(); ++k) {
        const NamedTask& named = tasks[k].named;
        RecordedRank& rank = added[devices[k]];
        rank.path = path;
        rank.rank = devices[k];
        rank.tasks.push_back({Task{*named.op, named.stage.value_or(devices[k]), named.microbatch.value_or(kNotNamed)},
                              tasks[k].start, tasks[k].end, named.step.value_or(0), named.chunk.value_or(-1)});
    }
    for (auto& [device, rank] : added)
        ranks.push_back(std::move(rank));
}

Trace read_named_events(const std::vector<std::string>& paths, std::vector<std::string>& notes) {
    std::vector<RecordedRank> ranks;
    bool has_steps = true;
    for (std::size_t file = 0; file < paths.size(); ++file) {
        const std::vector<NamedReader::Found> tasks = NamedReader().read(paths[file]);
        if (tasks.empty())
            fail("trace '{}': none of its events is a task of a pipeline: {}\n  help: {}", paths[file], kNamedTasks,
                 help_on_forms());
        const std::vector<int> devices =
            paths.size() > 1 ? std::vector<int>(tasks.size(), static_cast<int>(file)) : devices_of(tasks);
        has_steps = has_steps && std::all_of(tasks.begin(), tasks.end(),
                                             [](const NamedReader::Found& task) { return task.named.step; });
        add_tasks(paths[file], tasks, devices, ranks);
    }
    complete_names(ranks, has_steps, notes);
    return trace_of_ranks(std::move(ranks), RankClocks::Running, notes);
}

}  // namespace

extern const TraceForm kNamedEvents{.tasks = kNamedTasks,
                                    .of_one_rank = false,
                                    .is_task = is_named_task,
                                    .is_file = nullptr,
                                    .read = read_named_events};

}  // namespace pw
