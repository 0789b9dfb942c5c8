// The formats of traces that can be read.
#include "schedules/import/any_trace.h"
#include "schedules/import/trace_form.h"
#include "schedules/trace/trace_events.h"
#include "schedules/trace/trace_json.h"
#include "workloads/text/files.h"
#include "workloads/text/gzip.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// Each row is defined where its reader is.
extern const TraceForm kChakra, kChakraBinary, kKineto, kMegatronTimers, kNamedEvents, kNsight, kNsightDatabase,
    kPaddle, kPrimus, kVaruna;

namespace {

using nlohmann::json;

bool has_our_args(const json& event, TaskNames& names) {
    if (names.has_patterns())
        return false;
    const auto args = event.find("args");
    return args != event.end() && args->is_object() && args->contains("op") && args->contains("stage") &&
           args->at("op").is_string() && op_from(args->at("op").get_ref<const std::string&>());
}

Trace read_tasks(const std::vector<std::string>& paths, TaskNames&, std::vector<std::string>&) {
    if (paths.size() > 1)
        fail("trace '{}' has all devices, but {} files are named\n  help: name one file", paths.front(), paths.size());
    return read_foreign_trace(paths.front());
}

constexpr TraceForm kTasks{.tasks = "events with args op, stage and microbatch",
                           .of_one_rank = false,
                           .names_tasks = false,
                           .is_task = has_our_args,
                           .is_file = nullptr,
                           .read = read_tasks};

// An event is a task of the first row that takes it.
constexpr const TraceForm* kForms[] = {&kTasks,  &kKineto, &kNamedEvents, &kNsight,         &kNsightDatabase, &kChakra,
                                       &kPrimus, &kVaruna, &kPaddle,      &kMegatronTimers, &kChakraBinary};

const TraceForm* form_of_file(std::string_view beginning) {
    const auto form = std::find_if(std::begin(kForms), std::end(kForms), [&](const TraceForm* row) {
        return row->is_file != nullptr && row->is_file(beginning);
    });
    return form == std::end(kForms) ? nullptr : *form;
}

// The first task of a Chrome trace decides its format.
const TraceForm& form_of(const std::string& path, TaskNames& names) {
    if (const TraceForm* form = form_of_file(beginning_of(path)))
        return *form;
    struct Found {
        const TraceForm* form;
    };
    SeenNames seen;
    try {
        const json root = parse_events(path, help_on_forms(), [&](const JsonPlace& event, std::size_t) {
            const auto form = std::find_if(std::begin(kForms), std::end(kForms), [&](const TraceForm* row) {
                return row->is_task != nullptr && row->is_task(event.object, names);
            });
            if (form != std::end(kForms))
                throw Found{*form};
            seen.see(event.object);
        });
        if (root.contains("otherData") && root["otherData"].is_object() && root["otherData"].contains("plan_hash"))
            return kTasks;  // it says what is missing
    } catch (const Found& found) {
        return *found.form;
    }
    if (names.has_patterns())
        fail("trace '{}': no name matches {}; {}\n  help: {}", path, names.print(), seen.print(), pattern_forms());
    std::vector<std::string_view> tasks;
    for (const TraceForm* form : kForms)
        if (form->is_task != nullptr)
            tasks.emplace_back(form->tasks);
    fail("trace '{}': none of its events is a task of a plan: {}; {}\n  help: {}", path, fmt::join(tasks, "; "),
         seen.print(), seen.has_annotations() ? help_on_annotations() : help_on_forms());
}

}  // namespace

void SeenNames::see(const json& event) {
    constexpr std::size_t kMost = 8;
    const auto name = event.find("name"), category = event.find("cat");
    if (name == event.end() || !name->is_string())
        return;
    const bool annotates = category != event.end() && category->is_string() &&
                           category->get_ref<const std::string&>().ends_with("user_annotation");
    std::vector<std::string>& names = annotates ? annotations_ : names_;
    std::string shown = shortened(name->get_ref<const std::string&>(), 40);
    if (names.size() <= kMost && std::find(names.begin(), names.end(), shown) == names.end())
        names.push_back(std::move(shown));
}

std::string SeenNames::print() const {
    std::vector<std::string> names = annotations_.empty() ? names_ : annotations_;
    if (names.empty())
        return "it has no events with names";
    constexpr std::size_t kMost = 8;
    const bool more = names.size() > kMost;
    names.resize(std::min(names.size(), kMost));
    return fmt::format("it has {} '{}'{}", annotations_.empty() ? "events" : "annotations", fmt::join(names, "', '"),
                       more ? " and others" : "");
}

Trace read_any_trace(const std::vector<std::string>& paths, std::vector<std::string>& notes,
                     const std::vector<std::string>& patterns) {
    TaskNames names(patterns);
    const TraceForm& form = form_of(paths.front(), names);
    if (names.has_patterns() && !form.names_tasks)
        fail("trace '{}': its tasks have no names that a pattern could describe: {}\n  help: leave the pattern {} out",
             paths.front(), form.tasks, names.print());
    Trace trace = form.read(paths, names, notes);
    names.require_use(paths.front());
    return trace;
}

bool is_of_one_rank(const std::string& path) {
    TaskNames names;
    return form_of(path, names).of_one_rank;
}

bool begins_as_trace(std::string_view beginning) { return form_of_file(beginning) != nullptr; }

}  // namespace pw
