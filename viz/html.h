// The function that all HTML pages share.
#pragma once

#include <string>
#include <string_view>

namespace pw {

std::string html_escaped(std::string_view text);

}  // namespace pw
