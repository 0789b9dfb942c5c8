// Chrome traces of any program whose events name their tasks, in the name (`F3`, `1F3`, `fwd mb 3 stage 1`) or in args.
// A device is a process, or a thread where all tasks are of one process. Where no stage is named, it is the device's
// number.
#include "schedules/import/recorded_ranks.h"
#include "schedules/import/trace_form.h"
#include "schedules/trace/trace_events.h"

#include <algorithm>
#include <array>
#include <cctype>
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

constexpr const char* kTasksByName =
    "events named F3, 1F3 or 'fwd mb 3 stage 1', or with args op, microbatch and stage under such names";
constexpr int kMostNumber = 65'535;

struct OpWord {
    std::string_view word;
    Op op;
};
constexpr OpWord kOpWords[] = {
    {"f", Op::Forward},        {"fwd", Op::Forward},          {"forward", Op::Forward}, {"b", Op::Backward},
    {"bwd", Op::Backward},     {"backward", Op::Backward},    {"i", Op::BackwardInput}, {"dgrad", Op::BackwardInput},
    {"w", Op::BackwardWeight}, {"wgrad", Op::BackwardWeight}, {"r", Op::Recompute},     {"recompute", Op::Recompute},
};
constexpr std::string_view kStageWords[] = {"stage", "pp"};
constexpr std::string_view kMicroBatchWords[] = {"mb", "microbatch", "minibatch", "batch", "chunk"};
constexpr std::string_view kFillers[] = {"pass", "step",  "compute", "micro", "mini",
                                         "id",   "index", "task",    "for",   "of"};

template <class Words>
bool is_one_of(const Words& words, std::string_view word) {
    return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

std::optional<Op> op_of_word(std::string_view word) {
    const auto row =
        std::find_if(std::begin(kOpWords), std::end(kOpWords), [&](const OpWord& known) { return known.word == word; });
    return row == std::end(kOpWords) ? std::nullopt : std::optional(row->op);
}

struct Token {
    std::string word;  // empty: a number
    int number = 0;
};

// Returns the words, in lower case, and the numbers of a name; nothing for one that cannot be a task's.
std::vector<Token> tokens_of(std::string_view name) {
    constexpr std::size_t kLongest = 64;
    std::vector<Token> tokens;
    if (name.size() > kLongest)
        return tokens;
    for (std::size_t at = 0; at < name.size();) {
        const auto is_digit = [&](char c) { return c >= '0' && c <= '9'; };
        const auto is_letter = [&](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
        Token token;
        if (is_digit(name[at])) {
            const auto [end, error] = std::from_chars(name.data() + at, name.data() + name.size(), token.number);
            if (error != std::errc() || token.number > kMostNumber)
                return {};
            at = static_cast<std::size_t>(end - name.data());
        } else if (is_letter(name[at])) {
            for (; at < name.size() && is_letter(name[at]); ++at)
                token.word += static_cast<char>(std::tolower(static_cast<unsigned char>(name[at])));
        } else {
            ++at;
            continue;
        }
        tokens.push_back(std::move(token));
    }
    return tokens;
}

struct NamedTask {
    std::optional<Op> op;
    std::optional<int> stage, microbatch, step;
};

// Reads what a name says; nothing is set if it has a word that names of tasks do not have.
NamedTask named_in(std::string_view name) {
    NamedTask named;
    std::optional<int> before_op, after_op;
    const std::vector<Token> tokens = tokens_of(name);
    for (std::size_t k = 0; k < tokens.size(); ++k) {
        const std::string_view word = tokens[k].word;
        if (word.empty())
            continue;
        const bool is_followed = k + 1 < tokens.size() && tokens[k + 1].word.empty();
        const std::optional<int> next = is_followed ? std::optional(tokens[k + 1].number) : std::nullopt;
        if (const std::optional<Op> op = op_of_word(word); op && !named.op) {
            named.op = op;
            after_op = next;
            if (k > 0 && tokens[k - 1].word.empty())
                before_op = tokens[k - 1].number;
        } else if (named.op == Op::Backward && (word == "input" || word == "weight")) {
            named.op = word == "input" ? Op::BackwardInput : Op::BackwardWeight;
        } else if (is_one_of(kStageWords, word) && next) {
            named.stage = next;
        } else if (is_one_of(kMicroBatchWords, word) && next) {
            named.microbatch = next;
        } else if (!is_one_of(kFillers, word) && !is_one_of(kMicroBatchWords, word)) {
            return {};
        }
    }
    if (!named.microbatch)
        named.microbatch = after_op;
    if (!named.stage && before_op && after_op)  // 1F3
        named.stage = before_op;
    return named;
}

std::optional<int> number_in(const json& args, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
        const auto found = args.find(key);
        if (found == args.end())
            continue;
        if (found->is_number_integer() && *found >= 0 && *found <= kMostNumber)
            return found->get<int>();
        if (found->is_string())
            if (const std::vector<Token> tokens = tokens_of(found->get_ref<const std::string&>());
                tokens.size() == 1 && tokens.front().word.empty())
                return tokens.front().number;
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
            if (const NamedTask other = named_in(found->get_ref<const std::string&>()); other.op)
                named.op = other.op;
    const auto take = [&](std::optional<int>& value, std::initializer_list<const char*> keys) {
        if (const std::optional<int> number = number_in(*args, keys))
            value = number;
    };
    take(named.stage, {"stage", "stage_id", "stage_index", "pipeline_stage", "pp_rank"});
    take(named.microbatch, {"microbatch", "micro_batch", "microbatch_id", "micro_batch_id", "mb", "mb_id", "mb_index"});
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
    const NamedTask named = named_by(event);
    return named.op && named.microbatch;
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
        std::stable_sort(found_.begin(), found_.end(),
                         [](const Found& a, const Found& b) { return a.start < b.start; });
        return std::move(found_);
    }

private:
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

    // Numbers as texts of one width, so that they are in their order.
    static std::string shown_or_none(const json& event, const char* key) {
        const auto found = event.find(key);
        if (found == event.end())
            return "";
        return found->is_number_unsigned() ? fmt::format("{:020}", found->get<std::uint64_t>()) : shown(*found);
    }

    std::vector<Found> found_;
    std::map<Place, std::vector<int>> open_;  // B without E: numbers in found_, -1 for other events
};

// Returns the device of each task: a number for each process, or for each thread.
std::vector<int> devices_of(const std::vector<NamedReader::Found>& tasks) {
    std::set<std::string> processes, threads;
    for (const NamedReader::Found& task : tasks) {
        processes.insert(task.place.first);
        threads.insert(task.place.second);
    }
    const bool by_process = processes.size() > 1;
    const std::set<std::string>& names = by_process ? processes : threads;
    std::vector<int> devices;
    for (const NamedReader::Found& task : tasks)
        devices.push_back(static_cast<int>(
            std::distance(names.begin(), names.find(by_process ? task.place.first : task.place.second))));
    return devices;
}

void add_tasks(const std::string& path, const std::vector<NamedReader::Found>& tasks, const std::vector<int>& devices,
               std::vector<RecordedRank>& ranks) {
    std::map<int, RecordedRank> added;
    bool has_steps = true;
    for (std::size_t k = 0; k < tasks.size(); ++k) {
        const NamedTask& named = tasks[k].named;
        RecordedRank& rank = added[devices[k]];
        rank.path = path;
        rank.rank = devices[k];
        has_steps = has_steps && named.step;
        rank.tasks.push_back({Task{*named.op, named.stage.value_or(devices[k]), *named.microbatch}, tasks[k].start,
                              tasks[k].end, named.step.value_or(0)});
    }
    for (auto& [device, rank] : added) {
        if (!has_steps)
            number_by_runs(rank.tasks);
        ranks.push_back(std::move(rank));
    }
}

Trace read_named_events(const std::vector<std::string>& paths, std::vector<std::string>& notes) {
    std::vector<RecordedRank> ranks;
    for (std::size_t file = 0; file < paths.size(); ++file) {
        const std::vector<NamedReader::Found> tasks = NamedReader().read(paths[file]);
        if (tasks.empty())
            fail("trace '{}': none of its events is a task of a pipeline: {}\n  help: {}", paths[file], kTasksByName,
                 help_on_forms());
        const std::vector<int> devices =
            paths.size() > 1 ? std::vector<int>(tasks.size(), static_cast<int>(file)) : devices_of(tasks);
        add_tasks(paths[file], tasks, devices, ranks);
    }
    return trace_of_ranks(std::move(ranks), RankClocks::Running, notes);
}

}  // namespace

extern const TraceForm kNamedEvents{.tasks = kTasksByName,
                                    .of_one_rank = false,
                                    .is_task = is_named_task,
                                    .is_file = nullptr,
                                    .read = read_named_events};

}  // namespace pw
