#include "viz/gnuplot.h"

#include "viz/plot.h"
#include "workloads/error.h"
#include "workloads/process.h"
#include "workloads/text/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sstream>

namespace pw {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFont = "noenhanced font 'sans-serif,11'";

// Twice the size: sharp on dense screens; a point is 4/3 of a pixel.
std::string png_terminal(const PictureSize& size) {
    const double scale = size.scale;
    return fmt::format(
        "if (strstrt(GPVAL_TERMINALS, 'pngcairo') > 0) {{\n"
        "    set terminal pngcairo {} size {:.0f},{:.0f} fontscale {:.4g} linewidth {:.4g}\n}} else {{\n"
        "    set terminal png {} size {:.0f},{:.0f}\n}}\n",
        kFont, 2 * scale * size.width, 2 * scale * size.height, 1.5 * scale, 2 * scale, kFont, scale * size.width,
        scale * size.height);
}

// A pixel of the layout is a point.
std::string inches_of(const PictureSize& size) {
    return fmt::format("{:.3f}in,{:.3f}in", size.scale * size.width / 72, size.scale * size.height / 72);
}

// Fonts are scaled as in png.
std::string pdf_terminal(const PictureSize& size) {
    return fmt::format("set terminal pdfcairo {} size {} fontscale {:.4g} linewidth {:.4g}\n", kFont, inches_of(size),
                       0.75 * size.scale, 1.5 * size.scale);
}

// The variable of a script that names the text of a picture for LaTeX. gnuplot puts the rest into a file next to it.
constexpr std::string_view kLatexOutput = "latex_output";

// The text is in the font of the document.
std::string latex_terminal(const PictureSize& size) {
    return fmt::format(
        "set terminal cairolatex pdf input colortext size {} linewidth {:.4g} header "
        "'\\fontsize{{{:.4g}}}{{{:.4g}}}\\selectfont'\nset output {}\n",
        inches_of(size), 1.5 * size.scale, size.font, 1.2 * size.font, kLatexOutput);
}

std::string svg_terminal(const PictureSize& size) {
    const std::string scaled = size.scale == 1 ? "" : fmt::format(" fontscale {0:.4g} linewidth {0:.4g}", size.scale);
    return fmt::format("set terminal svg {} size {:.0f},{:.0f}{} background '#ffffff'\n", kFont,
                       size.scale * size.width, size.scale * size.height, scaled);
}

// The differences between scripts by format, and the ends of their pictures.
struct Terminal {
    std::string_view suffix;  // of the picture
    std::string (*chosen_by)(const PictureSize& size);
    std::string_view bold;
    double point_size;
    std::string_view end;  // among the last bytes of a whole picture
};
constexpr Terminal kTerminals[] = {
    {".svg", svg_terminal, "sans-serif bold", 1, "</svg>"},  // the first is that of scripts which the user keeps
    {".png", png_terminal, "sans-serif:Bold", 2, "IEND"},
    {".pdf", pdf_terminal, "sans-serif:Bold", 1, "%%EOF"},
    {".tex", latex_terminal, "sans-serif:Bold", 1, "\\endgroup"},
};

const Terminal& terminal_of(const std::string& file) {
    const std::string suffix = fs::path(file).extension().string();
    const Terminal* const found = std::find_if(std::begin(kTerminals), std::end(kTerminals),
                                               [&](const Terminal& terminal) { return terminal.suffix == suffix; });
    return found == std::end(kTerminals) ? kTerminals[0] : *found;
}

bool is_script(const std::string& file) { return fs::path(file).extension() == ".gp"; }
bool is_latex(const std::string& file) { return fs::path(file).extension() == ".tex"; }

// "steps.svg" for "folder/steps.gp".
std::string picture_of_script(const std::string& file) {
    return fs::path(file).filename().replace_extension(terminal_of(file).suffix).string();
}

// A file in memory, without a name: it disappears with the last process that has it open.
class MemoryFile {
public:
    MemoryFile() : number_(memfd_create("pipewright-plot", MFD_CLOEXEC)) {
        if (number_ < 0)
            fail_with(ExitCode::RunFailed, "no memory for a picture: {}", std::strerror(errno));
    }
    ~MemoryFile() { close(number_); }
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;
    int number() const { return number_; }

    void write(std::string_view text) const {
        while (!text.empty()) {
            const ssize_t wrote = ::write(number_, text.data(), text.size());
            if (wrote < 0 && errno != EINTR)
                fail_with(ExitCode::RunFailed, "no memory for a picture: {}", std::strerror(errno));
            text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(wrote, 0)));
        }
    }
    std::string contents() const {
        std::string text(static_cast<std::size_t>(std::max<off_t>(lseek(number_, 0, SEEK_END), 0)), '\0');
        std::size_t got = 0;
        for (ssize_t more = 1; got < text.size() && more > 0;
             got += static_cast<std::size_t>(std::max<ssize_t>(more, 0)))
            more = pread(number_, text.data() + got, text.size() - got, static_cast<off_t>(got));
        text.resize(got);
        return text;
    }

private:
    int number_;
};

// A folder that disappears with its files.
class ScratchFolder {
public:
    ScratchFolder() : path_((fs::temp_directory_path() / "pipewright-XXXXXX").string()) {
        if (mkdtemp(path_.data()) == nullptr)
            fail_with(ExitCode::RunFailed, "cannot make a folder for a picture in '{}': {}",
                      fs::temp_directory_path().string(), std::strerror(errno));
    }
    ~ScratchFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;
    std::string file(std::string_view name) const { return (fs::path(path_) / name).string(); }

private:
    std::string path_;
};

// gnuplot's error stream and exit status.
struct Outcome {
    int status = 0;
    std::string errors;
};

std::string read_all(int descriptor) {
    std::string text;
    char buffer[4096];
    for (;;) {
        const ssize_t got = read(descriptor, buffer, sizeof buffer);
        if (got > 0)
            text.append(buffer, static_cast<std::size_t>(got));
        else if (got == 0 || errno != EINTR)
            return text;
    }
}

// Without the user's start-up files: same script, same picture.
Outcome run_script(const MemoryFile& script, const MemoryFile& picture) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        fail_with(ExitCode::RunFailed, "cannot start gnuplot: {}", std::strerror(errno));
    pid_t child = 0;
    const int failed = start_child({"gnuplot", "-d", "/dev/stdin"},
                                   {.input = script.number(), .output = picture.number(), .errors = ends[1]}, child);
    close(ends[1]);
    if (failed != 0) {
        close(ends[0]);
        if (failed == ENOENT)
            fail_with(
                ExitCode::RunFailed,
                "gnuplot not found\n  help: apt-get install gnuplot-nox, or write .html or .txt, which need none, or "
                ".gp, the script");
        fail_with(ExitCode::RunFailed, "cannot start gnuplot: {}", std::strerror(failed));
    }
    Outcome outcome;
    outcome.errors = read_all(ends[0]);
    close(ends[0]);
    while (waitpid(child, &outcome.status, 0) < 0 && errno == EINTR) {
    }
    return outcome;
}

// gnuplot also exits with 0 if it could not write everything.
bool is_whole(std::string_view picture, std::string_view end) {
    constexpr std::size_t kTail = 64;
    return picture.substr(picture.size() - std::min(picture.size(), kTail)).find(end) != std::string_view::npos;
}

std::string xml_text(std::string_view text) {
    std::string escaped;
    for (const char c : text)
        escaped += c == '&' ? "&amp;" : c == '<' ? "&lt;" : std::string(1, c);
    return escaped;
}

std::string xml_title(std::string_view text) { return fmt::format("<title>{}</title>", xml_text(text)); }

// Returns gnuplot's group of an element, and what follows it, with names for its areas if there is one for each.
std::string with_names_of_areas(std::string_view group, const std::vector<std::string>& names) {
    constexpr std::string_view kArea = "<polygon ", kEnd = "/>";
    std::vector<std::size_t> ends;
    for (std::size_t at = 0; (at = group.find(kArea, at)) != std::string_view::npos; ++at)
        ends.push_back(group.find(kEnd, at));
    if (ends.size() < names.size() || ends.empty() || ends.back() == std::string_view::npos)
        return std::string(group);
    ends.resize(names.size());  // more are of the next plot
    std::string named;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < ends.size(); ++i) {
        named += group.substr(begin, ends[i] - begin);
        named += fmt::format(">{}</polygon>", xml_title(names[i]));
        begin = ends[i] + kEnd.size();
    }
    return named.append(group.substr(begin));
}

// Returns the group of an element of a plot command, from its id on, under its name instead of gnuplot's number or
// expression.
std::string named_part(std::string_view group, const PictureNames::Part& part) {
    constexpr std::string_view kEnd = "</title>";
    const std::size_t begin = group.find("<title>"), end = group.find(kEnd), head = group.find('>');
    if (begin == std::string_view::npos || end == std::string_view::npos || head > begin)
        return std::string(group);
    const std::string_view rest = group.substr(end + kEnd.size());
    if (part.name.empty())
        return fmt::format("{} pointer-events=\"none\"{}{}", group.substr(0, head), group.substr(head, begin - head),
                           rest);
    return fmt::format("{}{}{}", group.substr(0, begin), xml_title(part.name), with_names_of_areas(rest, part.areas));
}

// Lets browsers draw the part of a pixel that an area covers. gnuplot asks for sharp edges: whatever is thinner than a
// pixel then vanishes or grows to one, by its position, wherever the picture is shown smaller than it is.
std::string with_soft_edges(std::string_view svg) {
    constexpr std::string_view kSharp = " shape-rendering='crispEdges'";
    std::string soft;
    for (std::size_t at; (at = svg.find(kSharp)) != std::string_view::npos; svg.remove_prefix(at + kSharp.size()))
        soft += svg.substr(0, at);
    return soft.append(svg);
}

// Replaces the names that gnuplot gives a picture and its parts, which help its authors alone.
std::string with_names(std::string_view svg, const PictureNames& names) {
    constexpr std::string_view kTitle = "<title>", kTitleEnd = "</title>", kPart = "<g id=\"gnuplot_plot_";
    const std::size_t begin = svg.find(kTitle), end = svg.find(kTitleEnd);
    std::string named;
    if (begin < end && end != std::string_view::npos) {
        named += fmt::format("{}{}", svg.substr(0, begin), xml_title(names.picture));
        svg.remove_prefix(end + kTitleEnd.size());
    }
    std::size_t at = svg.find(kPart);
    named += svg.substr(0, at);
    for (std::size_t part = 0; at != std::string_view::npos; ++part) {
        const std::size_t next = svg.find(kPart, at + 1);
        const std::string_view group = svg.substr(at, next == std::string_view::npos ? next : next - at);
        named += named_part(group, part < names.parts.size() ? names.parts[part] : PictureNames::Part{});
        at = next;
    }
    return named;
}

// Runs the script, and returns what gnuplot wrote to its output stream.
std::string drawn_by(const std::string& script, const std::string& file) {
    const MemoryFile input, output;
    input.write(script);
    const Outcome outcome = run_script(input, output);
    if (outcome.status != 0)
        fail_with(ExitCode::RunFailed,
                  "gnuplot failed to draw '{}':\n{}\n  help: write a .gp instead to see its script", file,
                  outcome.errors.empty() ? fmt::format("status {}", outcome.status) : outcome.errors.substr(0, 2000));
    return output.contents();
}

void check_whole(std::string_view picture, const std::string& file) {
    if (!is_whole(picture, terminal_of(file).end))
        fail_with(ExitCode::RunFailed, "cannot write '{}': gnuplot wrote a part of it and no error; is memory full?",
                  file);
}

// Writes FILE.tex, and FILE-boxes.pdf, which it includes by the path of FILE.
void draw_for_latex(const std::string& file, const std::string& script) {
    const ScratchFolder folder;
    const std::string made = folder.file("picture");
    (void)drawn_by(fmt::format("{} = {}\n{}", kLatexOutput, gnuplot_quoted(made + ".tex"), script), file);
    constexpr std::string_view kHelp = "free memory in the folder of temporary files";
    std::string text = read_text(made + ".tex", kHelp);
    check_whole(text, file);
    const std::string boxes = fs::path(file).replace_extension().string() + "-boxes";
    for (std::size_t at; (at = text.find(made)) != std::string::npos;)
        text.replace(at, made.size(), boxes);
    write_file(boxes + ".pdf", read_text(made + ".pdf", kHelp));
    write_file(file, text);
}

// LaTeX's special characters, escaped.
std::string latex_text(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        const std::string_view word = c == '\\'  ? "\\textbackslash{}"
                                      : c == '~' ? "\\textasciitilde{}"
                                      : c == '^' ? "\\textasciicircum{}"
                                                 : "";
        if (word.empty() && std::string_view("#$%&_{}").find(c) != std::string_view::npos)
            escaped += '\\';
        escaped += word.empty() ? std::string(1, c) : std::string(word);
    }
    return escaped;
}

}  // namespace

bool has_gnuplot() {
    const char* path = std::getenv("PATH");
    std::istringstream folders(path != nullptr ? path : "/bin:/usr/bin");
    for (std::string folder; std::getline(folders, folder, ':');)
        if (access((fs::path(folder) / "gnuplot").c_str(), X_OK) == 0)
            return true;
    return false;
}

std::string gnuplot_quoted(std::string_view text) {
    std::string quoted = "'";
    for (const char c : text) {
        if (c == '\'')
            quoted += '\'';
        quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    return quoted + "'";
}

std::string gnuplot_text(const std::string& file, std::string_view text) {
    return gnuplot_quoted(is_latex(file) ? latex_text(text) : text);
}

std::string gnuplot_output(const std::string& file, const PictureSize& size) {
    const std::string output = is_script(file) ? gnuplot_quoted(picture_of_script(file)) : "";
    return fmt::format("set encoding utf8\n{}{}", terminal_of(file).chosen_by(size),
                       output.empty() ? "" : fmt::format("set output {}\n", output));
}

std::string_view gnuplot_bold(const std::string& file) { return terminal_of(file).bold; }

double gnuplot_point_size(const std::string& file) { return terminal_of(file).point_size; }

void draw_by_gnuplot(const std::string& file, std::string_view script, std::string_view data,
                     const PictureNames& names) {
    const std::string whole = fmt::format("{} << end_of_data\n{}end_of_data\n{}", kGnuplotData, data, script);
    if (is_script(file))
        return write_file(file, whole);
    if (is_latex(file))
        return draw_for_latex(file, whole);
    const std::string picture = drawn_by(whole, file);
    check_whole(picture, file);
    write_file(file, fs::path(file).extension() == ".svg" ? with_soft_edges(with_names(picture, names)) : picture);
}

}  // namespace pw
