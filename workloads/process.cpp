#include "workloads/process.h"

#include <signal.h>
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

}  // namespace

bool is_gone(const std::string& host, int process) {
    return process > 0 && host == host_name() && ((kill(process, 0) != 0 && errno == ESRCH) || is_zombie(process));
}

}  // namespace pw
