// One function for each kind of picture.
#pragma once

#include "viz/picture.h"

#include <string>
#include <vector>

namespace pw {

// The script and the data that draw the picture.
struct GnuplotFiles {
    std::string script, data;
};
GnuplotFiles timeline_script(const Picture& picture, const std::string& file);
GnuplotFiles curves_script(const Chart& chart, const std::string& file);

std::string curves_page(const Chart& chart);
std::string timeline_page(const Picture& picture);
std::string timeline_text(const Picture& picture);

}  // namespace pw
