#include "viz/gnuplot.h"

#include "viz/plot.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

extern char** environ;

namespace pw {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFont = "noenhanced font 'sans-serif,11'";

// Twice the size: sharp on dense screens; a point is 4/3 of a pixel.
std::string png_terminal(int width, int height) {
    return fmt::format(
        "if (strstrt(GPVAL_TERMINALS, 'pngcairo') > 0) {{\n"
        "    set terminal pngcairo {} size {},{} fontscale 1.5 linewidth 2\n}} else {{\n"
        "    set terminal png {} size {},{}\n}}\n",
        kFont, 2 * width, 2 * height, kFont, width, height);
}

// A pixel of the layout is a point, fonts are scaled as in png.
std::string pdf_terminal(int width, int height) {
    return fmt::format("set terminal pdfcairo {} size {:.3f}in,{:.3f}in fontscale 0.75 linewidth 1.5\n", kFont,
                       width / 72.0, height / 72.0);
}

std::string svg_terminal(int width, int height) {
    return fmt::format("set terminal svg {} size {},{} background '#ffffff'\n", kFont, width, height);
}

// What scripts say differently, and how their pictures end.
struct Terminal {
    std::string_view suffix;  // of the picture
    std::string (*chosen_by)(int width, int height);
    std::string_view bold;
    double point_size;
    std::string_view end;  // among the last bytes of a whole picture
};
constexpr Terminal kTerminals[] = {
    {".svg", svg_terminal, "sans-serif bold", 1, "</svg>"},  // the first is that of scripts which the user keeps
    {".png", png_terminal, "sans-serif:Bold", 2, "IEND"},
    {".pdf", pdf_terminal, "sans-serif:Bold", 1, "%%EOF"},
};

const Terminal& terminal_of(const std::string& file) {
    const std::string suffix = fs::path(file).extension().string();
    const Terminal* const found = std::find_if(std::begin(kTerminals), std::end(kTerminals),
                                               [&](const Terminal& terminal) { return terminal.suffix == suffix; });
    return found == std::end(kTerminals) ? kTerminals[0] : *found;
}

bool is_script(const std::string& file) { return fs::path(file).extension() == ".gp"; }

constexpr const char* kScript = "picture.gp";

// Of scripts and their pictures; goes with all that is in it.
class TemporaryFolder {
public:
    TemporaryFolder() : path_((fs::temp_directory_path() / "pipewright-plot-XXXXXX").string()) {
        if (mkdtemp(path_.data()) == nullptr)
            fail_with(ExitCode::RunFailed, "cannot make the folder '{}' for gnuplot: {}\n  help: set TMPDIR", path_,
                      std::strerror(errno));
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    const std::string& path() const { return path_; }
    std::string file(const std::string& name) const { return (fs::path(path_) / name).string(); }

private:
    std::string path_;
};

// "picture.svg" for "folder/steps.svg", and the picture's own name where the user keeps the script.
std::string output_of(const std::string& file) {
    const std::string_view suffix = terminal_of(file).suffix;
    return is_script(file) ? fs::path(file).filename().replace_extension(suffix).string()
                           : fmt::format("picture{}", suffix);
}

std::string contents_of(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

// What gnuplot wrote to its error stream, and its exit status.
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

// Runs in the script's folder, without the user's start-up files: same script, same picture.
Outcome run_script(const std::string& folder) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        fail_with(ExitCode::RunFailed, "cannot start gnuplot: {}", std::strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    const char* arguments[] = {"gnuplot", "-d", kScript, nullptr};
    pid_t child = 0;
    const int failed = posix_spawnp(&child, "gnuplot", &actions, nullptr, const_cast<char**>(arguments), environ);
    posix_spawn_file_actions_destroy(&actions);
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

// gnuplot exits with 0 on a full disk, too.
bool is_whole(const std::string& picture) {
    constexpr std::size_t kTail = 64;
    std::ifstream file(picture, std::ios::binary | std::ios::ate);
    const auto size = file ? static_cast<std::size_t>(file.tellg()) : 0;
    std::string tail(std::min(size, kTail), '\0');
    file.seekg(static_cast<std::streamoff>(size - tail.size()));
    file.read(tail.data(), static_cast<std::streamsize>(tail.size()));
    return tail.find(terminal_of(picture).end) != std::string::npos;
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

std::string gnuplot_output(const std::string& file, int width, int height) {
    return fmt::format("set encoding utf8\n{}set output {}\n", terminal_of(file).chosen_by(width, height),
                       gnuplot_quoted(output_of(file)));
}

std::string_view gnuplot_bold(const std::string& file) { return terminal_of(file).bold; }

double gnuplot_point_size(const std::string& file) { return terminal_of(file).point_size; }

void draw_by_gnuplot(const std::string& file, std::string_view script, std::string_view data) {
    const std::string whole = fmt::format("{} << end_of_data\n{}end_of_data\n{}", kGnuplotData, data, script);
    if (is_script(file))
        return write_file(file, whole);
    const TemporaryFolder folder;
    write_file(folder.file(kScript), whole);
    const Outcome outcome = run_script(folder.path());
    if (outcome.status != 0)
        fail_with(ExitCode::RunFailed,
                  "gnuplot failed to draw '{}':\n{}\n  help: write a .gp instead to see its script", file,
                  outcome.errors.empty() ? fmt::format("status {}", outcome.status) : outcome.errors.substr(0, 2000));
    if (!is_whole(folder.file(output_of(file))))
        fail_with(ExitCode::RunFailed, "cannot write '{}': gnuplot wrote a part of it and no error; is the disk full?",
                  file);
    write_file(file, contents_of(folder.file(output_of(file))));
}

}  // namespace pw
