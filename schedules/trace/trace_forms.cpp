// The formats of traces that can be read.
#include "schedules/trace/trace_events.h"
#include "schedules/trace/trace_json.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// Each row is defined where its reader is.
extern const TraceForm kKineto;

namespace {

using nlohmann::json;

bool has_our_args(const json& event) {
    const auto args = event.find("args");
    return args != event.end() && args->is_object() && args->contains("op") && args->contains("stage");
}

Trace read_tasks(const std::vector<std::string>& paths) {
    if (paths.size() > 1)
        fail("trace '{}' has all devices, but {} files are named\n  help: name one file", paths.front(), paths.size());
    return read_foreign_trace(paths.front());
}

constexpr TraceForm kTasks{.of_one_rank = false, .is_task = has_our_args, .read = read_tasks};

constexpr const TraceForm* kForms[] = {&kTasks, &kKineto};

// The first task of a file decides its format. A file without tasks is read in the first format, whose reader reports
// what is missing.
const TraceForm& form_of(const std::string& path) {
    struct Found {
        const TraceForm* form;
    };
    try {
        parse_events(path, help_on_forms(), [](const JsonPlace& event, std::size_t) {
            const auto form = std::find_if(std::begin(kForms), std::end(kForms),
                                           [&](const TraceForm* row) { return row->is_task(event.object); });
            if (form != std::end(kForms))
                throw Found{*form};
        });
    } catch (const Found& found) {
        return *found.form;
    }
    return kTasks;
}

}  // namespace

const char* help_on_forms() {
    static const std::string help = [] {
        std::vector<std::string_view> letters;
        for (const OpFacts& facts : kOpFacts)
            letters.push_back(facts.letters);
        return fmt::format(
            "name a trace that pipewright wrote; or one of another program whose tasks are events with ph X and args "
            "op ({}), stage, microbatch, for transfers peer, and start_ns and end_ns, or ts and dur instead, where the "
            "device is args.device or pid; or the files of torch.profiler, one per rank",
            fmt::join(letters, " "));
    }();
    return help.c_str();
}

Trace read_any_trace(const std::vector<std::string>& paths) { return form_of(paths.front()).read(paths); }

bool is_of_one_rank(const std::string& path) { return form_of(path).of_one_rank; }

}  // namespace pw
