// NCCL as the executor uses it, on one GPU.
//
//     gpu_nccl_smoke          two processes that pass for two hosts send messages both ways
//     gpu_nccl_smoke --kill   one of them dies: does the other notice, and end?
//     gpu_nccl_smoke --self   messages of one rank to itself, against plain copies
#include "bench/gpu/measuring.h"
#include "exec/cuda/device/device.h"
#include "exec/cuda/device/events.h"
#include "exec/cuda/device/job_gpus.h"
#include "exec/cuda/nccl.h"
#include "exec/engine/mailbox.h"
#include "job/config/config.h"
#include "tests/support/temporary_folder.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

namespace pw {
namespace {

using namespace cuda;
using namespace std::chrono_literals;

constexpr Ns kSecond = 1'000'000'000;
constexpr Ns kConnect = 30 * kSecond, kPatience = 20 * kSecond;  // for the first call, for a message
constexpr Ns kNotice = 5 * kSecond, kMostToEnd = 15 * kSecond;   // after the peer's death
constexpr Ns kHard = 90 * kSecond;                               // of the whole smoke test
constexpr unsigned kProcessSeconds = 100;
constexpr std::array kSizes = {Bytes{64}, Bytes{1} << 20, Bytes{64} << 20};
constexpr int kDead = 9;  // exit status of the rank that dies on purpose

double seconds(Ns time) { return static_cast<double>(time) * 1e-9; }

std::vector<std::byte> pattern(Bytes bytes, std::uint64_t seed) {
    std::vector<std::byte> values(static_cast<std::size_t>(bytes));
    std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (std::byte& value : values) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        value = static_cast<std::byte>(state >> 56);
    }
    return values;
}

void put(const std::vector<std::byte>& values, std::byte* to) {
    check(cudaMemcpy(to, values.data(), values.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
}

bool holds(const std::byte* memory, const std::vector<std::byte>& values) {
    std::vector<std::byte> copy(values.size());
    check(cudaMemcpy(copy.data(), memory, copy.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return copy == values;
}

cudaStream_t new_stream() {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return made;
}

// One of the two processes.
class Rank {
public:
    Rank(const ncclUniqueId& id, int rank)
        : rank_(rank),
          stream_(new_stream()),
          out_(allocate(kSizes.back())),
          in_(allocate(kSizes.back())),
          communicator_(id, 2, rank, "smoke") {
        communicator_.wait(kConnect);
    }

    // There and back. Rank 0, whose message goes first, prints the time.
    Ns trip(Bytes bytes, Ns patience) {
        const Ns start = clock_now();
        for (const bool sends : {rank_ == 0, rank_ != 0}) {
            move(sends, bytes);
            communicator_.wait(patience - (clock_now() - start));
        }
        finish(start + patience);
        return clock_now() - start;
    }

    bool try_size(Bytes bytes, int trips) {
        const auto seed = static_cast<std::uint64_t>(bytes);
        put(pattern(bytes, 2 * seed + static_cast<std::uint64_t>(rank_)), out_.get());
        check(cudaMemset(in_.get(), 0, static_cast<std::size_t>(bytes)), "cudaMemset");
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        const Ns first = trip(bytes, kPatience);
        Ns best = first;
        for (int k = 1; k < trips; ++k)
            best = std::min(best, trip(bytes, kPatience));
        const bool right = holds(in_.get(), pattern(bytes, 2 * seed + static_cast<std::uint64_t>(1 - rank_)));
        if (rank_ == 0)
            fmt::print("{:>10} {:14.3f} {:14.3f} {:12.1f}\n", print_bytes(bytes), seconds(first) * 1e3,
                       seconds(best) * 1e3, 2 * static_cast<double>(bytes) / seconds(best) * 1e-6);
        if (!right)
            fmt::print("rank {}: {} arrived wrong\n", rank_, print_bytes(bytes));
        return right;
    }

    // For rank 0 after rank 1 has died: whether it noticed and could abort.
    bool outlive() {
        const Ns start = clock_now();
        try {
            (void)trip(kSizes.back(), kNotice);
            fmt::print("rank 0: the message to the dead peer went through\n");
            return false;
        } catch (const Error& error) {
            fmt::print("rank 0: noticed after {:.2f} s: {}\n", seconds(clock_now() - start), error.what());
        }
        const Ns noticed = clock_now();
        std::promise<void> aborted;
        std::future<void> is_aborted = aborted.get_future();
        std::thread helper([&] {  // it may wait for the device
            communicator_.abort();
            aborted.set_value();
        });
        if (is_aborted.wait_for(5s) != std::future_status::ready) {
            fmt::print("rank 0: the abort did not return within 5 s\n");
            _exit(kNotShown);
        }
        helper.join();
        const Ns abort_time = clock_now() - noticed;
        wait_for(stream_.get(), kNotice);
        fmt::print("rank 0: aborted in {:.2f} s, the stream is empty {:.2f} s after the notice\n", seconds(abort_time),
                   seconds(clock_now() - noticed));
        return true;
    }

private:
    void move(bool sends, Bytes bytes) {
        const auto count = static_cast<std::size_t>(bytes);
        check(ncclGroupStart(), "ncclGroupStart");
        const ncclResult_t moved =
            sends ? ncclSend(out_.get(), count, ncclInt8, 1 - rank_, communicator_.get(), stream_.get())
                  : ncclRecv(in_.get(), count, ncclInt8, 1 - rank_, communicator_.get(), stream_.get());
        check(ncclGroupEnd(), "ncclGroupEnd");
        check(moved, sends ? "ncclSend" : "ncclRecv");
    }

    void finish(Ns deadline) const {
        for (;;) {
            const cudaError_t status = cudaStreamQuery(stream_.get());
            if (status != cudaErrorNotReady)
                return check(status, "cudaStreamQuery");
            communicator_.check_state();
            if (clock_now() > deadline)
                fail_with(ExitCode::PeerSilent, "the deadline has passed");
            std::this_thread::yield();
        }
    }

    int rank_;
    Owned<cudaStream_t, cudaStreamDestroy> stream_;
    DeviceMemory out_, in_;
    Communicator communicator_;
};

// Rank 0 makes the id, rank 1 finds it in the folder.
ncclUniqueId agree_on_id(int rank, const std::filesystem::path& folder) {
    const std::filesystem::path place = folder / "id", draft = folder / "id.new";
    if (rank == 0) {
        const ncclUniqueId id = new_id();
        std::ofstream(draft, std::ios::binary).write(id.internal, sizeof id.internal);
        std::filesystem::rename(draft, place);
        return id;
    }
    const Ns start = clock_now();
    while (!std::filesystem::exists(place)) {
        if (clock_now() - start > kConnect)
            fail_with(ExitCode::PeerSilent, "rank 0 has made no id for {}", print_time(kConnect));
        std::this_thread::sleep_for(10ms);
    }
    ncclUniqueId id{};
    std::ifstream(place, std::ios::binary).read(id.internal, sizeof id.internal);
    return id;
}

int run_rank(int number, const std::string& folder, bool kills) {
    check(cudaSetDevice(0), "cudaSetDevice");
    check(cudaFree(nullptr), "cudaFree");
    const Ns start = clock_now();
    Rank rank(agree_on_id(number, folder), number);
    if (number == 0)
        fmt::print("connected in {:.2f} s\n{:>10} {:>14} {:>14} {:>12}\n", seconds(clock_now() - start), "message",
                   "first trip ms", "best trip ms", "MB/s");
    bool right = true;
    for (const Bytes bytes : kSizes) {
        if (kills && bytes == kSizes.back()) {
            if (number == 1)
                _exit(kDead);
            return rank.outlive() ? kShown : kNotShown;
        }
        right = rank.try_size(bytes, 3) && right;
    }
    return right ? kShown : kNotShown;
}

// The environment of a rank: two hosts with one network between them.
std::vector<std::string> environment_of(int rank) {
    const std::vector<std::string> own = {fmt::format("NCCL_HOSTID=host{}", rank), "NCCL_NET=Socket",
                                          "NCCL_IB_DISABLE=1", "NCCL_SOCKET_IFNAME=lo", "NCCL_RAS_ENABLE=0"};
    std::vector<std::string> all = own;
    for (char** variable = environ; *variable != nullptr; ++variable) {
        const std::string text = *variable;
        const bool replaced = std::ranges::any_of(
            own, [&](const std::string& mine) { return text.starts_with(mine.substr(0, mine.find('=') + 1)); });
        if (!replaced)
            all.push_back(text);
    }
    return all;
}

struct Child {
    pid_t id = 0;
    int status = -1;
    Ns ended = 0;  // 0: runs
};

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (std::string& text : texts)
        pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
}

Child start_rank(int rank, const std::string& folder, bool kills) {
    std::vector<std::string> words = {"gpu_nccl_smoke", "--rank", std::to_string(rank + 1), "--folder", folder};
    if (kills)
        words.emplace_back("--kill");
    std::vector<std::string> variables = environment_of(rank);
    Child child;
    const int status = posix_spawn(&child.id, "/proc/self/exe", nullptr, nullptr, pointers_to(words).data(),
                                   pointers_to(variables).data());
    if (status != 0)
        fail_with(ExitCode::RunFailed, "cannot start rank {}: {}", rank, std::strerror(status));
    return child;
}

void wait_for_children(std::array<Child, 2>& children, Ns deadline, bool kills) {
    const auto done = [&] { return children[0].ended != 0 && children[1].ended != 0; };
    while (!done() && clock_now() < deadline) {
        for (Child& child : children)
            if (child.ended == 0 && waitpid(child.id, &child.status, WNOHANG) == child.id)
                child.ended = clock_now();
        if (kills && children[1].ended != 0)
            deadline = std::min(deadline, children[1].ended + kMostToEnd);
        std::this_thread::sleep_for(10ms);
    }
}

std::string end_of(const Child& child) {
    if (child.ended == 0)
        return "had to be killed";
    return WIFEXITED(child.status) ? fmt::format("ended with status {}", WEXITSTATUS(child.status))
                                   : fmt::format("ended by signal {}", WTERMSIG(child.status));
}

bool ended_with(const Child& child, int status) {
    return child.ended != 0 && WIFEXITED(child.status) && WEXITSTATUS(child.status) == status;
}

int run_pair(bool kills) {
    const TemporaryFolder folder;
    const Ns start = clock_now();
    std::array<Child, 2> children;
    for (int rank = 0; rank < 2; ++rank)
        children[static_cast<std::size_t>(rank)] = start_rank(rank, folder.path().string(), kills);
    wait_for_children(children, start + kHard, kills);
    std::array<Child, 2> left = children;
    for (const Child& child : children)
        if (child.ended == 0)
            (void)kill(child.id, SIGKILL);
    wait_for_children(left, clock_now() + 10 * kSecond, false);
    for (int rank = 0; rank < 2; ++rank)
        fmt::print("rank {} {}\n", rank, end_of(children[static_cast<std::size_t>(rank)]));
    if (!kills)
        return shown(ended_with(children[0], kShown) && ended_with(children[1], kShown),
                     "two processes on one GPU exchange messages, and what arrives is what was sent");
    const double late = children[0].ended == 0 ? 0 : seconds(children[0].ended - children[1].ended);
    if (children[0].ended != 0)
        fmt::print("rank 0 ended {:.2f} s after rank 1\n", late);
    return shown(ended_with(children[0], kShown) && ended_with(children[1], kDead) && late < seconds(kMostToEnd),
                 fmt::format("a rank notices within {:.0f} s that its peer is dead, and ends within {:.0f} s",
                             seconds(kNotice), seconds(kMostToEnd)));
}

// Seconds per message, by events.
template <class Move>
double time_of(cudaStream_t stream, int repeats, Move move) {
    const Event from(Event::Kind::Timed), to(Event::Kind::Timed);
    for (int k = 0; k < 3; ++k)
        move();
    from.record(stream);
    for (int k = 0; k < repeats; ++k)
        move();
    to.record(stream);
    wait_for(stream, kPatience);
    return seconds(elapsed(from.get(), to.get())) / repeats;
}

class Self {
public:
    explicit Self(const Seat& seat) : device_(seat, Precision::Fp32, true), communicator_(new_id(), 1, 0, "self") {
        communicator_.wait(kConnect);
    }

    double time(const std::byte* from, std::byte* to, Bytes bytes) {
        const auto count = static_cast<std::size_t>(bytes);
        return time_of(device_.stream(), 20, [&] {
            check(ncclGroupStart(), "ncclGroupStart");
            const ncclResult_t sent = ncclSend(from, count, ncclInt8, 0, communicator_.get(), device_.stream());
            const ncclResult_t received = ncclRecv(to, count, ncclInt8, 0, communicator_.get(), device_.stream());
            check(ncclGroupEnd(), "ncclGroupEnd");
            check(sent, "ncclSend");
            check(received, "ncclRecv");
            communicator_.wait(kPatience);
        });
    }
    const GpuShare& device() const { return device_; }

private:
    GpuShare device_;
    Communicator communicator_;
};

int run_self() {
    constexpr Bytes kMost = Bytes{256} << 20;
    const Config config;
    JobGpus job;
    Self whole(Seat{}), half(seats_of(config, 2, job).front());
    const DeviceMemory from = allocate(kMost), to = allocate(kMost);
    std::vector<std::byte> sent = pattern(kMost, 1);
    put(sent, from.get());
    fmt::print("a message to oneself, per message\n1: {}\n2: {}\n{:>10} {:>21} {:>21} {:>21}\n", whole.device().name(),
               half.device().name(), "bytes", "NCCL on 1: us, GB/s", "NCCL on 2: us, GB/s", "copy: us, GB/s");
    bool right = true;
    std::vector<Bytes> sizes;
    for (Bytes bytes = 1024; bytes <= kMost; bytes *= 4)
        sizes.push_back(bytes);
    for (const Bytes bytes : sizes) {
        const auto count = static_cast<std::size_t>(bytes);
        const auto expected = std::vector<std::byte>(sent.begin(), sent.begin() + bytes);
        std::string line = fmt::format("{:>10}", print_bytes(bytes));
        const auto add = [&](double time) {
            line += fmt::format(" {:11.2f} {:9.1f}", time * 1e6, static_cast<double>(bytes) / time * 1e-9);
        };
        for (Self* self : {&whole, &half}) {
            check(cudaMemset(to.get(), 0, count), "cudaMemset");
            check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
            add(self->time(from.get(), to.get(), bytes));
            right = right && holds(to.get(), expected);
        }
        const cudaStream_t stream = whole.device().stream();
        add(time_of(stream, 20, [&] {
            check(cudaMemcpyAsync(to.get(), from.get(), count, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
        }));
        fmt::print("{}\n", line);
    }
    return shown(right, "one rank sends messages to itself, and what arrives is what was sent");
}

int smoke(Arguments& arguments) {
    const int rank = arguments.number("--rank", 1000) - 1;  // given to the two processes
    const std::string folder = arguments.text("--folder", "");
    const bool kills = arguments.flag("--kill"), self = arguments.flag("--self");
    arguments.done();
    if (!folder.empty())
        return run_rank(rank, folder, kills);
    return self ? run_self() : run_pair(kills);
}

}  // namespace
}  // namespace pw

int main(int count, char** values) { return pw::measured(count, values, pw::kProcessSeconds + 20, pw::smoke); }
