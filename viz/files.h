// The files that plots are made of: suffixes, writing, and gnuplot as a process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pw {

enum class Format { Svg, Png, Pdf, Html, Text, Json };

// By suffix. Throws Error (BadInput) listing the legal ones.
Format format_of(const std::string& file);
constexpr bool by_gnuplot(Format format) { return format <= Format::Pdf; }

// A text in single quotes, as gnuplot reads it. Line breaks become spaces.
std::string gnuplot_quoted(std::string_view text);
// The lines of a script that choose terminal and output; the picture lies in the script's folder.
std::string gnuplot_output(const std::string& file, int width, int height);
// The bold font, which terminals spell differently.
std::string gnuplot_bold(const std::string& file);
// The name of FILE.dat inside FILE.gp.
std::string gnuplot_data(const std::string& file);
// Writes FILE.gp and FILE.dat and lets gnuplot make FILE.
void run_gnuplot(const std::string& file, std::string_view script, std::string_view data);

std::string html_escaped(std::string_view text);

}  // namespace pw
