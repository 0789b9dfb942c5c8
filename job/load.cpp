#include "job/load.h"

#include "job/config/read.h"
#include "job/launched_ranks.h"
#include "job/plan.h"
#include "workloads/text/files.h"

#include <filesystem>
#include <memory>
#include <utility>

namespace pw {

Config load_config(const std::string& path, const std::vector<std::string>& set) {
    auto source = std::make_shared<Source>(path, read_text(path, "name a YAML file that can be read"));
    const std::string folder = std::filesystem::absolute(path).parent_path().string();
    WrittenConfig written = read_config(std::move(source), folder, set);
    const PlanDefaults schedule = defaults_of(written.config.pipeline.schedule);
    return complete(std::move(written), schedule, launched_ranks().size);
}

}  // namespace pw
