// gnuplot as a process, and the common parts of its scripts. FILE is the picture, whose suffix chooses among the
// terminals of gnuplot.cpp, or FILE.gp, the script that draws FILE.svg. FILE.tex has the text of a picture, which LaTeX
// typesets, and includes FILE-boxes.pdf with the rest.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pw {

// Returns a text in single quotes, as gnuplot reads it. Line breaks become spaces.
std::string gnuplot_quoted(std::string_view text);
// Returns the same for a text in FILE. In FILE.tex, LaTeX's special characters are escaped.
std::string gnuplot_text(const std::string& file, std::string_view text);

struct PictureSize {
    int width, height;  // of the layout, in pixels
    double font = 11;   // size of plain text in the picture
    double scale = 1;   // of the picture, with its text and lines, against its layout
};
// Returns the lines of a script that choose the terminal for a picture of this size and, for FILE.gp, the output, in
// the folder in which it is drawn.
std::string gnuplot_output(const std::string& file, const PictureSize& size);
// Returns the name of the bold font, which depends on the terminal.
std::string_view gnuplot_bold(const std::string& file);
// Returns the factor by which points are drawn larger on larger pages.
double gnuplot_point_size(const std::string& file);
// The name of the data block in a script.
inline constexpr std::string_view kGnuplotData = "$data";
// Readable names: titles in SVG, which browsers show under the mouse and screen readers read out.
struct PictureNames {
    // An element of the script's plot commands. Without a name the mouse finds what is below it.
    struct Part {
        std::string name;
        std::vector<std::string> areas = {};  // names of its filled areas, in their order; empty: they have that name
    };
    std::string picture;
    std::vector<Part> parts;  // in the order of the elements
};
// Lets gnuplot make FILE, with script and picture in memory: only FILE is written, and gnuplot ends with this process.
// For FILE.gp it writes the script. Throws Error (RunFailed) with gnuplot's message, or if gnuplot left only a part of
// a picture.
void draw_by_gnuplot(const std::string& file, std::string_view script, std::string_view data,
                     const PictureNames& names);

}  // namespace pw
