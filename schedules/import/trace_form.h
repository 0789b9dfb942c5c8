// The formats of traces that other programs write.
#pragma once

#include "schedules/import/task_patterns.h"
#include "schedules/trace/trace.h"

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace pw {

// A format of trace files. Its row is defined next to its reader. trace_forms.cpp lists the rows.
struct TraceForm {
    const char* tasks;  // what a task is in the format, for messages and help
    bool of_one_rank;   // one trace is several files
    bool names_tasks;   // tasks are events with names, which patterns may describe
    bool (*is_task)(const nlohmann::json& event, TaskNames& names);  // Chrome: the first task decides the format
    bool (*is_file)(std::string_view beginning);  // whether a file that begins so has the format. Chrome: null
    // Throws Error (BadInput) with file and position. `notes` are for people: how clocks were aligned, what is left
    // out.
    Trace (*read)(const std::vector<std::string>& paths, TaskNames& names, std::vector<std::string>& notes);
};

// Returns a help text for files of torch.profiler in which no task is named.
const char* help_on_annotations();

// The names of events that are no tasks, for the message that says so.
class SeenNames {
public:
    void see(const nlohmann::json& event);
    std::string print() const;  // "it has events 'aten::mm', ...", or its annotations
    bool has_annotations() const { return !annotations_.empty(); }  // as torch.profiler writes them

private:
    std::vector<std::string> names_, annotations_;
};

}  // namespace pw
