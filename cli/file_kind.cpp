#include "cli/file_kind.h"

#include "schedules/import/any_trace.h"
#include "workloads/costs/profiled_model.h"
#include "workloads/error.h"
#include "workloads/text/gzip.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>

namespace pw {

namespace {

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// Returns whether a line starts with the key, or whether the text is one map in braces that has it.
bool has_key(const std::string& text, const std::string& key) {
    const std::string named = key + ":";
    return text.starts_with(named) || has(text, "\n" + named) ||
           (text.starts_with('{') && (has(text, named) || has(text, "\"" + key + "\"")));
}

// What messages say of a file in place of another one: its kind, and how it is used, with {0} for its path.
struct KindText {
    FileKind kind;
    const char *name, *use;
};
constexpr KindText kKindTexts[] = {
    {FileKind::Model, "model", "name it in a config: workload: {{model: {0}}}"},
    {FileKind::Profile, "profile",
     "name it in a config: cluster: {{profile: {0}}}; `pipewright validate {0}` checks it"},
    {FileKind::Products, "table of products",
     "name it in a config: cluster: {{products: {0}}}; `pipewright validate {0}` checks it"},
    {FileKind::Trace, "trace", "`pipewright plot {0} -o FILE` draws it, `pipewright validate {0}` checks it"},
    {FileKind::Plan, "plan", "name it in a config: pipeline: {{schedule: {0}}}; `pipewright validate {0}` checks it"},
    {FileKind::Table, "table",
     "a plan has cells such as 0F0, a row for each device; a model has a row for each layer, and the first row names "
     "the columns, as in: name, forward (ms), backward (ms)"},
    {FileKind::NsightOther, "file of Nsight Systems without a table of ranges",
     "export the ranges of tasks: nsys stats --report nvtx_gpu_proj_trace --format csv FILE.nsys-rep, or "
     "nvtx_pushpop_trace where the GPU was not recorded"},
};

[[noreturn]] void fail_kind(const std::string& path, FileKind kind, std::string_view expected) {
    const auto text = std::find_if(std::begin(kKindTexts), std::end(kKindTexts),
                                   [&](const KindText& row) { return row.kind == kind; });
    fail("'{}' is a {}, not a {}\n  help: {}", path, text->name, expected, fmt::format(fmt::runtime(text->use), path));
}

// Returns whether the text begins with a cell of a plan, which may have a mistake: 0F0, F0_s1, (0F4;1B0)OVERLAP_F_B.
bool begins_as_cell(std::string_view text) {
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n,("), text.size()));
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::string_view rest = text.substr(digits);
    if (digits > 0)
        return !rest.empty() && is_letter(rest.front());
    return rest.size() > 1 && is_letter(rest[0]) && is_digit(rest[1]);
}

FileKind kind_of_table(const std::string& text) {
    std::string first = text.substr(0, text.find('\n'));
    if (has(first, "Total Time (") || has(first, "Duration ("))
        return FileKind::NsightOther;
    for (char& c : first)
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    for (const char* column : {"name", "layer", "forward", "fwd"})
        if (has(first, column))
            return FileKind::Model;
    return text.empty() || begins_as_cell(text) ? FileKind::Plan : FileKind::Table;
}

}  // namespace

FileKind kind_of(const std::string& path) {
    const std::string text = beginning_of(path);
    if (begins_as_trace(text))
        return FileKind::Trace;
    if (path.ends_with(".nsys-rep") || path.ends_with(".qdrep"))
        return FileKind::NsightOther;
    if (path.ends_with(".csv"))
        return kind_of_table(text);
    const bool is_json = text.starts_with('{') || text.starts_with('[');
    if (is_json && (has(text, "\"traceEvents\"") || has(text, "\"otherData\"") || has(text, "\"ph\"") ||
                    has(text, "\"distributedInfo\"") || has(text, "\"deviceProperties\"")))
        return FileKind::Trace;
    if (has(text, "workload"))
        return FileKind::Unknown;
    if (has_key(text, "profile") && (has(text, "threads_per_device") || has_key(text, "layers")))
        return FileKind::Profile;
    if (has_key(text, "tables") && has(text, "rows"))
        return FileKind::Products;
    const bool is_graph = text.starts_with("node") && has(text, " -- ");
    if (is_graph || has_key(text, "layers") ||
        (is_json && (has(text, "\"nodes\"") || has(text, "\"layer_compute_total_ms\"") || has(text, "\"layertype_"))))
        return FileKind::Model;
    return FileKind::Unknown;
}

bool names_workload(const std::string& path) { return has_key(beginning_of(path), "workload"); }

void require_config(const std::string& path) {
    if (const FileKind kind = kind_of(path); kind != FileKind::Unknown)
        fail_kind(path, kind, "config");
}

void require_trace(const std::string& path, const std::string& command) {
    const FileKind kind = kind_of(path);
    if (kind == FileKind::Unknown && names_workload(path))
        fail("'{}' is a config, not a trace\n  help: {}", path, command);
    if (kind != FileKind::Unknown && kind != FileKind::Trace)
        fail_kind(path, kind, "trace");
}

}  // namespace pw
