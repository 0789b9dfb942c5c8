#include "cli/streams.h"

#include "workloads/error.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace pw {

namespace {

constexpr std::size_t kLongestLine = 4000;  // of a message: a value of a file may be a megabyte

[[noreturn]] void fail_to_write() {
    fail_with(ExitCode::RunFailed, "cannot write to standard output: {}", std::strerror(errno));
}

}  // namespace

void keep_standard_streams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (fcntl(stream, F_GETFD) == -1)
            (void)!open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest number is free
    std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the write
}

void write_result(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
        fail_to_write();
}

void finish_results() {
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
        fail_to_write();
}

void say(std::string_view text) {
    const std::string line = shortened_lines(escaped_controls(text), kLongestLine) + '\n';
    std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace pw
