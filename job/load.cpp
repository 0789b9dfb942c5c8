#include "job/load.h"

#include "job/config/read.h"
#include "job/launched_ranks.h"
#include "job/plan.h"
#include "workloads/text/files.h"

#include <filesystem>
#include <memory>
#include <utility>

namespace pw {

Config load_config(const std::string& path, const std::vector<std::string>& set, std::shared_ptr<const Schedule> own) {
    return load_config(path, read_text(path, "name a YAML file that can be read"), set, std::move(own));
}

Config load_config(const std::string& name, std::string text, const std::vector<std::string>& set,
                   std::shared_ptr<const Schedule> own) {
    auto source = std::make_shared<Source>(name, std::move(text));
    WrittenConfig written = read_config(std::move(source), folder_of_config(name), set);
    written.config.pipeline.own_schedule = std::move(own);
    const PlanDefaults schedule = defaults_of(written.config.pipeline);
    return complete(std::move(written), schedule, launched_ranks().size);
}

std::string folder_of_config(const std::string& path) {
    const std::filesystem::path whole = std::filesystem::absolute(path);
    const bool is_stream = path.starts_with("/dev/") || path.starts_with("/proc/");
    return (is_stream ? std::filesystem::current_path() : whole.parent_path()).string();
}

}  // namespace pw
