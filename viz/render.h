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
GnuplotFiles curves_script(const std::vector<Curve>& curves, const std::string& x_label, const std::string& y_label,
                           const std::string& file);

std::string timeline_page(const Picture& picture);
std::string timeline_text(const Picture& picture);

}  // namespace pw
