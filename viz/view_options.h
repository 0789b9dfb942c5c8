// What users say of how a picture is drawn: a table for the options of the program and the keywords in Python.
#pragma once

#include "viz/plot.h"

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

struct ViewOption {
    std::string_view name;                                         // "font-size", in Python font_size
    const char *type, *help;                                       // for people
    bool of_charts;                                                // charts take the option, too
    bool is_list;                                                  // takes several words, else one
    std::string (*refuse)(const std::vector<std::string>& words);  // returns what is wrong, empty if nothing is
    void (*set)(View& view, const std::vector<std::string>& words);
};

// In the order in which they apply: a width replaces the width of a figure.
std::span<const ViewOption> view_options();

// Returns the view of options by their names in Python, each with at least a word. Names that are no options are
// ignored. Throws Error (BadInput) with the name of an option whose value is wrong.
View view_of(const std::map<std::string, std::vector<std::string>>& options);

}  // namespace pw
