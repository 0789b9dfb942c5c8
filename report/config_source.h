// A config as it is given: a file or a text, and overrides. Questions that try other values load the config again.
#pragma once

#include "job/load.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pw {

struct ConfigSource {
    std::string path;
    std::vector<std::string> set;          // "pipeline.micro_batches=8"
    std::optional<std::string> text = {};  // instead of the file's (`path` is then the text's name for load_config())
    std::shared_ptr<const Schedule> schedule = {};  // of the caller: the config may name it

    // Loads the config with further overrides, which win. Throws Error (BadInput) as load_config() does.
    Config load_with(const std::vector<std::string>& more) const {
        std::vector<std::string> all = set;
        all.insert(all.end(), more.begin(), more.end());
        return text ? load_config(path, *text, all, schedule) : load_config(path, all, schedule);
    }
};

}  // namespace pw
