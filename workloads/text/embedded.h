// Tables of public figures that are part of the library (workloads/CMakeLists.txt).
#pragma once

#include "workloads/text/yaml.h"

#include <memory>
#include <span>
#include <string>
#include <utility>

namespace pw {

// Parses a table's text, which is in pieces. Errors call the text `name`. The reader of the table throws the mistakes.
inline Yaml parse_embedded(std::string name, std::span<const char* const> pieces) {
    std::string text;
    for (const char* piece : pieces)
        text += piece;
    return Yaml::parse(std::make_shared<Source>(std::move(name), std::move(text)));
}

}  // namespace pw
