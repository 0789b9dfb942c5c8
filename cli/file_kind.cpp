#include "cli/file_kind.h"

#include "schedules/import/any_trace.h"
#include "workloads/error.h"
#include "workloads/text/gzip.h"

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

[[noreturn]] void fail_kind(const std::string& path, std::string_view kind, std::string_view expected,
                            const std::string& help) {
    fail("'{}' is a {}, not a {}\n  help: {}", path, kind, expected, help);
}

}  // namespace

FileKind kind_of(const std::string& path) {
    const std::string text = beginning_of(path);
    if (path.ends_with(".csv"))
        return has(text.substr(0, text.find('\n')), "name") ? FileKind::Model : FileKind::Plan;
    const bool is_json = text.starts_with('{') || text.starts_with('[');
    if (is_json && (has(text, "\"traceEvents\"") || has(text, "\"otherData\"") || has(text, "\"ph\"") ||
                    has(text, "\"distributedInfo\"") || has(text, "\"deviceProperties\"")))
        return FileKind::Trace;
    if (begins_as_trace(text))
        return FileKind::Trace;
    if (has(text, "workload"))
        return FileKind::Unknown;
    if (has_key(text, "profile") && (has(text, "threads_per_device") || has_key(text, "layers")))
        return FileKind::Profile;
    if (has_key(text, "tables") && has(text, "rows"))
        return FileKind::Products;
    const bool is_graph = text.starts_with("node") && has(text, " -- ");
    if (is_graph || has_key(text, "layers") ||
        (is_json && (has(text, "\"nodes\"") || has(text, "\"layer_compute_total_ms\""))))
        return FileKind::Model;
    return FileKind::Unknown;
}

bool names_workload(const std::string& path) { return has_key(beginning_of(path), "workload"); }

void require_config(const std::string& path) {
    switch (kind_of(path)) {
        case FileKind::Model:
            fail_kind(path, "model", "config", fmt::format("name it in a config: workload: {{model: {}}}", path));
        case FileKind::Profile:
            fail_kind(path, "profile", "config",
                      fmt::format("name it in a config: cluster: {{profile: {0}}}; `pipewright validate {0}` checks it",
                                  path));
        case FileKind::Products:
            fail_kind(
                path, "table of products", "config",
                fmt::format("name it in a config: cluster: {{products: {0}}}; `pipewright validate {0}` checks it",
                            path));
        case FileKind::Trace:
            fail_kind(path, "trace", "config",
                      fmt::format("`pipewright plot {0} -o FILE` draws it, `pipewright validate {0}` checks it", path));
        case FileKind::Plan:
            fail_kind(
                path, "plan", "config",
                fmt::format("name it in a config: pipeline: {{schedule: {0}}}; `pipewright validate {0}` checks it",
                            path));
        case FileKind::Unknown:
            break;
    }
}

void require_trace(const std::string& path, const std::string& command) {
    const FileKind kind = kind_of(path);
    if (kind == FileKind::Unknown && has_key(beginning_of(path), "workload"))
        fail_kind(path, "config", "trace", command);
    if (kind == FileKind::Model || kind == FileKind::Profile || kind == FileKind::Products || kind == FileKind::Plan)
        require_config(path);  // reports what the file is
}

}  // namespace pw
