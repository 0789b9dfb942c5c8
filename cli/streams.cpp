#include "cli/streams.h"

#include "job/launched_ranks.h"
#include "report/table.h"
#include "workloads/error.h"

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <span>

namespace pw {

namespace {

constexpr std::size_t kLongestLine = 4000;  // of a message: a value in a file may be a megabyte long

Verbosity chosen_verbosity = Verbosity::Normal;
std::vector<std::string> broken_words;  // of the command line, with line breaks in them

[[noreturn]] void fail_to_write() {
    fail_with(ExitCode::RunFailed, "cannot write to standard output: {}", std::strerror(errno));
}

}  // namespace

void keep_standard_streams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (fcntl(stream, F_GETFD) == -1)
            (void)!open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest number is free
    std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is reported as an error of the write
}

void fit_tables_to_terminal() {
    constexpr int kLeast = 40;
    winsize size{};
    if (isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= kLeast)
        set_table_width(size.ws_col);
}

void write_result(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
        fail_to_write();
}

void print_json(const Json& json) { write_result(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"); }

void finish_results() {
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
        fail_to_write();
}

void keep_words(int count, char** words) {
    for (const std::string_view word : std::span(words, static_cast<std::size_t>(count)))
        if (word.size() > 1 && word.find_first_of("\n\t") != std::string_view::npos)
            broken_words.emplace_back(word);
}

void write_message(std::string_view text) {
    std::string named(text);
    for (const std::string& word : broken_words)
        for (std::size_t at = 0; (at = named.find(word, at)) != std::string::npos;) {
            const std::string escaped = escaped_line(word);
            named.replace(at, word.size(), escaped);
            at += escaped.size();
        }
    const std::string line = shortened_lines(escaped_controls(named), kLongestLine) + '\n';
    std::fwrite(line.data(), 1, line.size(), stderr);
}

void set_verbosity(Verbosity chosen) { chosen_verbosity = chosen; }

Verbosity verbosity() { return chosen_verbosity; }

void print_note(const std::string& text) {
    if (is_first_rank() && verbosity() != Verbosity::Quiet)
        write_message("note: " + text);
}

void print_details(const std::vector<std::string>& lines) {
    if (is_first_rank() && verbosity() == Verbosity::Verbose)
        for (const std::string& line : lines)
            write_message("detail: " + line);
}

void print_notes(const std::vector<std::string>& notes) {
    for (const std::string& note : notes)
        print_note(note);
}

void print_warning(const std::string& text) {
    if (is_first_rank())
        write_message("warning: " + text);
}

void print_warnings(const std::vector<std::string>& warnings) {
    for (const std::string& warning : warnings)
        print_warning(warning);
}

ProgressLine::ProgressLine()
    : terminal_(isatty(STDERR_FILENO) == 1 && verbosity() != Verbosity::Quiet),
      lines_(!terminal_ && verbosity() == Verbosity::Verbose && is_first_rank()) {}

ProgressLine::~ProgressLine() { hide(); }

void ProgressLine::hide() {
    if (shown_)
        std::fputs("\r\033[K", stderr);
    shown_ = false;
    if (!unwritten_.empty())
        write_line();
    written_.reset();
}

void ProgressLine::show(const std::string& text) {
    if (lines_) {
        unwritten_ = text;
        if (!written_ || std::chrono::steady_clock::now() - *written_ >= std::chrono::seconds(1))
            write_line();
    }
    if (!terminal_)
        return;
    std::fputs(("\r\033[K" + escaped_controls(text)).c_str(), stderr);
    std::fflush(stderr);
    shown_ = true;
}

void ProgressLine::write_line() {
    write_message(unwritten_);
    unwritten_.clear();
    written_ = std::chrono::steady_clock::now();
}

}  // namespace pw
