#include "cli/whole_program.h"

#include "cli/signals.h"
#include "workloads/error.h"
#include "workloads/process.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

namespace pw {

namespace {

[[noreturn]] void fail_to_start(const std::string& program, int error) {
    if (error == ENOENT)
        fail_with(ExitCode::RunFailed,
                  "no program '{}' was found\n  help: apt-get install openmpi-bin, or name an installed launcher: "
                  "--launcher mpiexec.mpich",
                  program);
    fail_with(ExitCode::RunFailed, "cannot start '{}': {}", program, std::strerror(error));
}

// Returns 0 if there is no such process.
pid_t parent_of(const std::string& process) {
    std::ifstream status("/proc/" + process + "/status");
    pid_t parent = 0;
    for (std::string key; status >> key;)
        if (key == "PPid:" && status >> parent)
            break;
    return parent;
}

std::set<pid_t> children() {
    std::set<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const std::string name = entry.path().filename().string();
        pid_t process = 0;
        const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
        if (error == std::errc() && end == name.data() + name.size() && parent_of(name) == getpid())
            found.insert(process);
    }
    return found;
}

// Kills all children except the kept ones. A killed process leaves its children to this process, so that in the end all
// are killed.
void kill_children_but(const std::set<pid_t>& kept) {
    for (bool found = true; found;) {
        found = false;
        for (const pid_t child : children())
            if (!kept.contains(child)) {
                kill(child, SIGKILL);
                waitpid(child, nullptr, 0);
                found = true;
            }
    }
}

// The signals that end a program, except signals that this process ignores (nohup), and the end of a child.
sigset_t awaited_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP})
        if (!is_ignored(signal))
            sigaddset(&signals, signal);
    sigaddset(&signals, SIGCHLD);
    std::signal(SIGCHLD, SIG_DFL);  // if ignored, the exit code would be lost
    return signals;
}

pid_t start(const std::vector<std::string>& words, int results, const sigset_t& mask) {
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pid_t child = 0;
    const int error = start_child(words,
                                  {.input = nothing,
                                   .output = results,
                                   .errors = STDERR_FILENO,
                                   .last_signal = SIGTERM,
                                   .new_session = true,
                                   .mask = &mask},
                                  child);
    close(nothing);
    if (error != 0)
        fail_to_start(words.front(), error);
    return child;
}

std::string contents_of_open(int file) {
    std::string text(static_cast<std::size_t>(lseek(file, 0, SEEK_END)), '\0');
    const ssize_t got = pread(file, text.data(), text.size(), 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return text;
}

}  // namespace

ProgramEnd run_whole_program(const std::vector<std::string>& words) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const std::set<pid_t> others = children();  // a shell that became this process may have left some
    const sigset_t awaited = awaited_signals();
    sigset_t before;
    sigprocmask(SIG_BLOCK, &awaited, &before);
    const int results = memfd_create("results", MFD_CLOEXEC);
    if (results < 0)
        fail_with(ExitCode::RunFailed, "no memory for the results: {}", std::strerror(errno));
    const pid_t child = start(words, results, before);
    ProgramEnd end;
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        int signal = 0;
        sigwait(&awaited, &signal);
        if (signal == SIGCHLD)
            continue;
        kill(child, end.stopped ? SIGKILL : signal);
        end.stopped = true;
    }
    kill_children_but(others);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    end.results = contents_of_open(results);
    close(results);
    return end;
}

}  // namespace pw
