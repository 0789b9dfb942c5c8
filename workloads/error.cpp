#include "workloads/error.h"

#include <algorithm>
#include <string_view>

namespace pw {

namespace {
constexpr std::string_view kHelp = "\n  help: ";
}  // namespace

Error::Error(ExitCode code, const std::string& text, std::vector<Setting> settings)
    : std::runtime_error(text), code_(code), settings_(std::move(settings)) {
    const std::size_t end = std::min(text.find(kHelp), text.size());
    fact_ = text.substr(0, end);
    if (end < text.size())
        help_ = text.substr(end + kHelp.size());
}

Error::Error(ExitCode code, std::string fact, std::string help, std::string key, std::string place,
             const std::string& text)
    : std::runtime_error(text),
      code_(code),
      fact_(std::move(fact)),
      help_(std::move(help)),
      key_(std::move(key)),
      place_(std::move(place)) {}

}  // namespace pw
