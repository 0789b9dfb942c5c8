// The options of commands that draw, besides the file: one table for all.
#pragma once

#include "viz/plot.h"

#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace pw {

// Adds the options to `command`: they need `picture`, the option that names the file. Charts have no range of time.
void add_picture_options(CLI::App& command, CLI::Option* picture, View& view, bool has_timelines);

// Prints a note to stderr if a written picture is very large.
void note_large_picture(const std::string& file);

}  // namespace pw
