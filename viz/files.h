// The files that plots are made of: suffixes, writing, and gnuplot as a process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pw {

enum class Format { Svg, Png, Pdf, Gnuplot, Html, Text, Json };

// By suffix. Throws Error (BadInput) listing the legal ones.
Format format_of(const std::string& file);
constexpr bool by_gnuplot(Format format) { return format <= Format::Gnuplot; }

// A text in single quotes, as gnuplot reads it. Line breaks become spaces.
std::string gnuplot_quoted(std::string_view text);
// The lines of a script that choose terminal and output; the picture lies in the script's folder. The script FILE.gp
// draws FILE.svg.
std::string gnuplot_output(const std::string& file, int width, int height);
// The bold font, which terminals spell differently.
std::string gnuplot_bold(const std::string& file);
// The data of a script, which it brings along.
inline constexpr std::string_view kGnuplotData = "$data";
// Lets gnuplot make FILE, in a temporary folder of which nothing stays. Of FILE.gp it writes the script.
void draw_by_gnuplot(const std::string& file, std::string_view script, std::string_view data);

std::string html_escaped(std::string_view text);

}  // namespace pw
