// The version, with the commit of the sources if they are a checkout.
#pragma once

#include <string>

namespace pw {

std::string version_text();  // "pipewright 0.2.0 (1a2b3c4, backends: ...)"

}  // namespace pw
