// Runs scenarios of ranks on a virtual clock: those of so many seeds from one on.
//
//     virtual_clock FROM COUNT     prints what was seen, and each seed whose run came to what must not be
//     virtual_clock SEED           prints what happens in the run of one seed, twice: the same
//     virtual_clock find FROM COUNT     looks for a seed whose run comes to what must not be, twice: the same
//
// Exits with 0 when all was as it must be, or such a seed was found; else with 1.
#include "tests/virtual/scenario.h"

#include <fmt/format.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pw {
namespace {

// What a process of its own, whose memory ends with it, shares with the one that reports.
struct Shared {
    std::uint64_t seed = 0;  // under way
    int failed = 0;
    int completed = 0;
};
constexpr std::uint64_t kTogether = 200;

void print_wrong(std::uint64_t seed, const Judgement& judgement) {
    fmt::print("seed {}: {}, {}\n", seed, judgement.subject, judgement.what);
    for (const std::string& text : judgement.wrong)
        fmt::print("    {}\n", text);
}

int run_all(const std::vector<Subject>& subjects, std::uint64_t from, std::uint64_t count) {
    auto* const shared =
        static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    *shared = {};
    int crashed = 0;
    for (std::uint64_t first = from; first < from + count;) {
        const std::uint64_t last = std::min(first + kTogether, from + count);
        std::fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            for (std::uint64_t seed = first; seed < last; ++seed) {
                shared->seed = seed;
                const Judgement judgement = judge(subjects, seed, false);
                shared->completed += judgement.completed ? 1 : 0;
                if (!judgement.wrong.empty()) {
                    ++shared->failed;
                    print_wrong(seed, judgement);
                }
            }
            std::fflush(stdout);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        first = last;
        if (status != 0) {
            fmt::print("seed {}: the process ends with {:#x}\n", shared->seed, status);
            ++crashed;
            first = shared->seed + 1;
        }
    }
    fmt::print("{} seeds from {} on: {} runs came to their right weights, {} ended as they must, {} are wrong\n", count,
               from, shared->completed, static_cast<int>(count) - shared->completed - shared->failed - crashed,
               shared->failed + crashed);
    return shared->failed + crashed == 0 ? 0 : 1;
}

int replay(const std::vector<Subject>& subjects, std::uint64_t seed) {
    const Judgement first = judge(subjects, seed, true), second = judge(subjects, seed, false);
    if (!first.wrong.empty())
        print_wrong(seed, first);
    fmt::print("it lasts {:.3f} s of its world; fingerprint {:016x}, again {:016x}\n",
               static_cast<double>(first.lasted) * 1e-9, first.fingerprint, second.fingerprint);
    return first.wrong.empty() && first.fingerprint == second.fingerprint ? 0 : 1;
}

// A process for each seed: a run that comes to what must not be may leave a mess.
int find(const std::vector<Subject>& subjects, std::uint64_t from, std::uint64_t count) {
    const auto comes_to = [&](std::uint64_t seed, bool tells) {
        int ends[2];
        if (pipe(ends) != 0)
            return std::string("no pipe");
        std::fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            const Judgement judgement = judge(subjects, seed, tells);
            std::fflush(stdout);
            std::string text = judgement.wrong.empty() ? "" : fmt::format("fingerprint {:016x}", judgement.fingerprint);
            for (const std::string& wrong : judgement.wrong)
                text += "\n    " + wrong;
            text.resize(std::min<std::size_t>(text.size(), 4000));
            _exit(::write(ends[1], text.data(), text.size()) < 0 ? 1 : 0);
        }
        close(ends[1]);
        std::string text(4096, ' ');
        text.resize(static_cast<std::size_t>(std::max<ssize_t>(read(ends[0], text.data(), text.size()), 0)));
        close(ends[0]);
        int status = 0;
        waitpid(child, &status, 0);
        return status == 0 ? text : fmt::format("the process ends with {:#x}", status);
    };
    for (std::uint64_t seed = from; seed < from + count; ++seed) {
        const std::string text = comes_to(seed, false);
        if (text.empty())
            continue;
        fmt::print("seed {}: {}\n", seed, text);
        const std::string again = comes_to(seed, true);
        fmt::print("again: {}\n", again);
        return again == text ? 0 : 1;
    }
    fmt::print("{} seeds from {} on find nothing\n", count, from);
    return 1;
}

}  // namespace
}  // namespace pw

int main(int argc, char** argv) {
    const bool finds = argc == 4 && std::string_view(argv[1]) == "find";
    if (argc != 2 && argc != 3 && !finds) {
        fmt::print(stderr, "usage: virtual_clock [find] FROM COUNT, or virtual_clock SEED\n");
        return 2;
    }
    const std::vector<pw::Subject> subjects = pw::make_subjects();
    const std::uint64_t from = std::strtoull(argv[finds ? 2 : 1], nullptr, 10);
    const std::uint64_t count = std::strtoull(argv[argc - 1], nullptr, 10);
    if (finds)
        return pw::find(subjects, from, count);
    return argc == 2 ? pw::replay(subjects, from) : pw::run_all(subjects, from, count);
}
