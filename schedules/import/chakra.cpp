// Execution traces of PyTorch and Chakra in JSON, a file for each rank: a graph of operators, in which annotations are
// nodes with a name. PyTorch's own have no times. chakra_trace_link adds them: `ts` and `inclusive_dur`, or `dur`, in
// microseconds. Nodes without a task's name are left out.
#include "schedules/import/named_ranges.h"
#include "schedules/import/trace_form.h"
#include "schedules/trace/trace_events.h"
#include "workloads/text/files.h"
#include "workloads/text/json_text.h"
#include "workloads/text/printable.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace pw {

namespace {

constexpr const char* kChakraHelp =
    "name the files of torch.profiler, which have times, or execution traces to which chakra_trace_link has added them";
constexpr const char* kChakraNodes = "nodes with names such as PP:0F1 and with times (Chakra execution traces)";

bool begins_as_chakra(std::string_view text) {
    if (!text.starts_with('{'))
        return false;
    constexpr std::string_view kKeys[] = {"\"schema\"", "\"nodes\"", "\"ctrl_deps\""};
    return std::all_of(std::begin(kKeys), std::end(kKeys),
                       [&](std::string_view key) { return text.find(key) != text.npos; });
}

// Tensors of operators take no memory.
bool is_kept(nlohmann::json::parse_event_t event, const nlohmann::json& value) {
    constexpr std::string_view kLeftOut[] = {"inputs", "outputs", "attrs"};
    return event != nlohmann::json::parse_event_t::key || !value.is_string() ||
           std::find(std::begin(kLeftOut), std::end(kLeftOut), value.get_ref<const std::string&>()) ==
               std::end(kLeftOut);
}

class ChakraReader {
public:
    ChakraReader(const std::vector<std::string>& paths, std::size_t file, TaskNames& names)
        : path_(paths[file]), file_(file), names_(names) {}

    void read(std::vector<NamedRange>& ranges) {
        const std::string text = read_text(path_, kChakraHelp, kMostTrace);
        const nlohmann::json root = parse_json(
            text, fmt::format("trace '{}'", path_),
            [](int, nlohmann::json::parse_event_t event, const nlohmann::json& value) { return is_kept(event, value); },
            kChakraHelp);
        const JsonPlace place{path_, root, "file", kChakraHelp};
        const nlohmann::json& nodes = place.at("nodes");
        if (!nodes.is_array())
            place.reject("nodes", "expected a list, got {}", nodes.type_name());
        const std::size_t before = ranges.size();
        for (std::size_t k = 0; k < nodes.size(); ++k)
            take({path_, nodes[k], fmt::format("nodes[{}]", k), kChakraHelp}, ranges);
        if (ranges.size() > before)
            return;
        names_.require_use(path_);
        fail("trace '{}': none of its nodes is a task of a pipeline: {}; {}\n  help: {}", path_, kChakraNodes,
             seen_.print(), kChakraHelp);
    }

private:
    void take(const JsonPlace& node, std::vector<NamedRange>& ranges) {
        const auto name = node.object.is_object() ? node.object.find("name") : node.object.end();
        if (name == node.object.end() || !name->is_string())
            return;
        const NamedTask task = names_.task_in(name->get_ref<const std::string&>());
        if (!task.is_task())
            return seen_.see(node.object);
        const char* const duration = node.has("inclusive_dur") ? "inclusive_dur" : "dur";
        if (!node.has("ts") || !node.has(duration))
            fail(
                "trace '{}': {} is the task '{}' without times: this execution trace has only the order of operators\n"
                "  help: {}",
                path_, node.name, shortened(node.text("name"), 60), kChakraHelp);
        const Ns start = node.micros("ts"), end = start + node.micros(duration);
        if (end > kMaxTime)
            node.reject(duration, "it ends later than {} ns", kMaxTime);
        ranges.push_back({file_, number_as_text(file_), "", task, start, end});
    }

    const std::string& path_;
    const std::size_t file_;
    TaskNames& names_;
    SeenNames seen_;
};

Trace read_chakra(const std::vector<std::string>& paths, TaskNames& names, std::vector<std::string>& notes) {
    std::vector<NamedRange> ranges;
    for (std::size_t file = 0; file < paths.size(); ++file)
        ChakraReader(paths, file, names).read(ranges);
    return trace_of_ranges(paths, std::move(ranges), notes);
}

}  // namespace

extern const TraceForm kChakra{.tasks = kChakraNodes,
                               .of_one_rank = true,
                               .names_tasks = true,
                               .is_task = nullptr,
                               .is_file = begins_as_chakra,
                               .read = read_chakra};

}  // namespace pw
