// Chrome traces of any program whose events name their tasks, in the name (task_names.h) or in args. In several
// files, each file is a device. named_ranges.h says what a device is in a single file.
#include "schedules/import/named_ranges.h"
#include "schedules/import/trace_form.h"
#include "schedules/trace/trace_events.h"

#include <iterator>
#include <map>
#include <optional>
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

bool is_of_kineto(const json& event) {  // an operator or a kernel
    const auto args = event.find("args");
    return args != event.end() && args->is_object() && (args->contains("External id") || args->contains("correlation"));
}

// Returns the task of an event, with what its args say before what its name does. Patterns are about names only.
NamedTask named_by(const json& event, TaskNames& names) {
    NamedTask named;
    if (is_of_kineto(event))
        return named;
    if (const auto name = event.find("name"); name != event.end() && name->is_string())
        named = names.task_in(name->get_ref<const std::string&>());
    const auto args = event.find("args");
    if (args == event.end() || !args->is_object() || names.has_patterns())
        return named;
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

bool is_named_task(const json& event, TaskNames& names) {
    const std::string_view phase = phase_of(event);
    if (phase != "X" && phase != "B")
        return false;
    return named_by(event, names).is_task();
}

class NamedReader {
public:
    NamedReader(const std::vector<std::string>& paths, std::size_t file, TaskNames& names)
        : path_(paths[file]), file_(file), is_device_(paths.size() > 1), names_(names) {}

    void read(std::vector<NamedRange>& ranges) {
        parse_events(path_, help_on_forms(), [this](const JsonPlace& event, std::size_t) { take(event); });
        std::erase_if(found_, [](const NamedRange& range) { return range.end < range.start; });  // without an end
        if (found_.empty() && !names_.has_patterns())
            fail("trace '{}': none of its events is a task of a pipeline: {}\n  help: {}", path_, kNamedTasks,
                 help_on_forms());
        std::move(found_.begin(), found_.end(), std::back_inserter(ranges));
    }

private:
    using Place = std::pair<std::string, std::string>;  // process and thread

    void take(const JsonPlace& event) {
        const std::string_view phase = phase_of(event.object);
        const Place place{shown_or_none(event.object, "pid"), shown_or_none(event.object, "tid")};
        if (phase == "E") {
            close(place, event);
        } else if (phase == "B") {
            open_[place].push_back(is_named_task(event.object, names_) ? static_cast<int>(found_.size()) : -1);
            if (open_[place].back() >= 0)
                add(place, event, -1);
        } else if (phase == "X" && is_named_task(event.object, names_)) {
            const Ns end = event.micros("ts") + event.micros("dur");
            if (end > kMaxTime)
                event.reject("dur", "it ends later than {} ns", kMaxTime);
            add(place, event, end);
        }
    }

    void close(const Place& place, const JsonPlace& event) {
        std::vector<int>& open = open_[place];
        if (open.empty())
            return;
        if (open.back() >= 0) {
            NamedRange& range = found_[static_cast<std::size_t>(open.back())];
            range.end = event.micros("ts");
            if (range.end < range.start)
                event.reject("ts", "the event ends {} ns before it starts", range.start - range.end);
        }
        open.pop_back();
    }

    void add(const Place& place, const JsonPlace& event, Ns end) {
        NamedRange range{file_, place.first, place.second, named_by(event.object, names_), event.micros("ts"), end};
        if (const auto args = event.object.find("args"); args != event.object.end() && args->is_object())
            range.host = host_in(*args);
        if (is_device_) {
            range.process = number_as_text(file_);
            range.named.rank.reset();
        }
        found_.push_back(std::move(range));
    }

    static std::string shown_or_none(const json& event, const char* key) {
        const auto found = event.find(key);
        if (found == event.end())
            return "";
        return found->is_number_unsigned() ? number_as_text(found->get<std::uint64_t>()) : shown(*found);
    }

    const std::string& path_;
    const std::size_t file_;
    const bool is_device_;  // whether the file is a device
    TaskNames& names_;
    std::vector<NamedRange> found_;
    std::map<Place, std::vector<int>> open_;  // B without E: numbers in found_, -1 for other events
};

Trace read_named_events(const std::vector<std::string>& paths, TaskNames& names, std::vector<std::string>& notes) {
    std::vector<NamedRange> ranges;
    for (std::size_t file = 0; file < paths.size(); ++file)
        NamedReader(paths, file, names).read(ranges);
    names.require_use(paths.front());
    return trace_of_ranges(paths, std::move(ranges), notes);
}

}  // namespace

extern const TraceForm kNamedEvents{.tasks = kNamedTasks,
                                    .of_one_rank = false,
                                    .names_tasks = true,
                                    .is_task = is_named_task,
                                    .is_file = nullptr,
                                    .read = read_named_events};

}  // namespace pw
