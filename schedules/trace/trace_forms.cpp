// The formats of traces that can be read, with a row for each.
#include "schedules/trace/kineto.h"
#include "schedules/trace/trace_events.h"
#include "schedules/trace/trace_json.h"

#include <algorithm>
#include <iterator>

namespace pw {

namespace {

using nlohmann::json;

struct TraceForm {
    bool of_one_rank;  // one trace is several files
    bool (*is_task)(const json& event);
    Trace (*read)(const std::vector<std::string>& paths);
};

bool has_our_args(const json& event) {
    const auto args = event.find("args");
    return args != event.end() && args->is_object() && args->contains("op") && args->contains("stage");
}

Trace read_tasks(const std::vector<std::string>& paths) {
    if (paths.size() > 1)
        fail("trace '{}' has all devices, but {} files are named\n  help: name one file", paths.front(), paths.size());
    return read_foreign_trace(paths.front());
}

constexpr TraceForm kForms[] = {
    {false, has_our_args, read_tasks},
    {true, is_kineto_task, read_kineto},
};

// The first task of a file decides its format. A file without tasks is read in the first format, whose reader reports
// what is missing.
const TraceForm& form_of(const std::string& path) {
    struct Found {
        const TraceForm* form;
    };
    try {
        parse_events(path, kTraceForms, [](const JsonPlace& event, std::size_t) {
            const auto form = std::find_if(std::begin(kForms), std::end(kForms),
                                           [&](const TraceForm& row) { return row.is_task(event.object); });
            if (form != std::end(kForms))
                throw Found{form};
        });
    } catch (const Found& found) {
        return *found.form;
    }
    return kForms[0];
}

}  // namespace

Trace read_any_trace(const std::vector<std::string>& paths) { return form_of(paths.front()).read(paths); }

bool is_of_one_rank(const std::string& path) { return form_of(path).of_one_rank; }

}  // namespace pw
