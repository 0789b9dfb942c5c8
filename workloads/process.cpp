#include "workloads/process.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

namespace pw {

std::string host_name() {
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

namespace {

// It has ended, and its parent has not asked for its exit code yet.
bool is_zombie(int process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string stat;
    std::getline(file, stat);  // "4711 (name) Z ..."
    const std::size_t name_end = stat.rfind(')');
    return name_end != std::string::npos && stat.substr(name_end, 3) == ") Z";
}

// Between vfork and exec only system calls are made. Returns only if one fails.
void become(char* const* arguments, const ChildStart& start, pid_t parent) {
    const bool ready = prctl(PR_SET_PDEATHSIG, start.last_signal) == 0 && getppid() == parent &&
                       (!start.new_session || setsid() >= 0) && dup2(start.input, STDIN_FILENO) >= 0 &&
                       dup2(start.output, STDOUT_FILENO) >= 0 && dup2(start.errors, STDERR_FILENO) >= 0 &&
                       (start.mask == nullptr || sigprocmask(SIG_SETMASK, start.mask, nullptr) == 0);
    if (ready)
        execvp(arguments[0], arguments);
}

}  // namespace

bool is_gone(const std::string& host, int process) {
    return process > 0 && host == host_name() && ((kill(process, 0) != 0 && errno == ESRCH) || is_zombie(process));
}

int start_child(const std::vector<std::string>& words, const ChildStart& start, pid_t& child) {
    std::vector<char*> arguments;
    for (const std::string& word : words)
        arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const pid_t parent = getpid();
    volatile int failed = 0;
    child = vfork();
    if (child == 0) {
        become(arguments.data(), start, parent);
        failed = errno;
        _exit(127);
    }
    if (child < 0)
        return errno;
    if (failed != 0)
        waitpid(child, nullptr, 0);
    return failed;
}

}  // namespace pw
