#include "cli/version.h"

#include "cli/commit.h"
#include "exec/backends.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pw {

std::string version_text() {
    return fmt::format("pipewright {} ({}backends: {})", PIPEWRIGHT_VERSION, kCommit,
                       fmt::join(built_in_backends(), ", "));
}

}  // namespace pw
