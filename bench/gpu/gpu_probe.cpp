// Whether this GPU, its driver and its libraries support the calls that the backend needs. Every line is one check: ok
// or failed, its duration and the reason. The parts are processes, so a check that fails, crashes or hangs stops no
// other.
//
//     gpu_probe [--part machine | shares | convolutions | one-thread | taking-turns | two-threads | nccl | clusters]
#include "bench/gpu/probing.h"
#include "exec/cuda/device/device.h"
#include "exec/cuda/device/events.h"
#include "exec/cuda/nccl.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace pw {
namespace {

using namespace cuda;

// The machine.

int check_machine(Arguments&) {
    probe("GPU", [] {
        cudaDeviceProp gpu{};
        check(cudaGetDeviceProperties(&gpu, 0), "cudaGetDeviceProperties");
        return fmt::format("{}, {} multiprocessors, {} of memory, {} of L2", gpu.name, gpu.multiProcessorCount,
                           print_bytes(static_cast<Bytes>(gpu.totalGlobalMem)), print_bytes(gpu.l2CacheSize));
    });
    probe("CUDA", [] {
        int driver_version = 0, runtime = 0;
        check(cudaDriverGetVersion(&driver_version), "cudaDriverGetVersion");
        check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
        return fmt::format("driver {}, runtime {}", driver_version, runtime);
    });
    probe("cuDNN", [] { return fmt::to_string(cudnnGetVersion()); });
    probe("NCCL", [] {
        int version = 0;
        check(ncclGetVersion(&version), "ncclGetVersion");
        return fmt::to_string(version);
    });
    probe("cuBLAS", [] {
        Owned<cublasHandle_t, cublasDestroy> handle;
        cublasHandle_t made = nullptr;
        check(cublasCreate(&made), "cublasCreate");
        handle.reset(made);
        int version = 0;
        check(cublasGetVersion(made, &version), "cublasGetVersion");
        return fmt::to_string(version);
    });
    return verdict();
}

// Shares.

int check_shares(Arguments&) {
    Share share;
    probe("a share of 16 multiprocessors", [&] {
        share = make_share();
        return fmt::format("it has {}", share.multiprocessors);
    });
    if (failed_probes() > 0)
        return verdict();
    probe("a fill on its stream", [&] {
        const DeviceMemory memory = allocate(1 << 20);
        check(cudaMemsetAsync(memory.get(), 1, 1 << 20, share.streams[0]), "cudaMemsetAsync");
        wait_for(share.streams[0], kPatience);
        return "";
    });
    probe("cuDNN on its stream, made outside of it", [&] {
        (void)cudnn_on(share.streams[0]);
        return "";
    });
    probe("a product of cuBLAS on its stream", [&] {
        constexpr int kSide = 64;
        constexpr Bytes kBytes = kSide * kSide * sizeof(float);
        const std::vector<float> ones(kSide * kSide, 1.0F);
        const DeviceMemory a = allocate(kBytes), b = allocate(kBytes);
        check(cudaMemcpy(a.get(), ones.data(), kBytes, cudaMemcpyHostToDevice), "cudaMemcpy");
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // the share's streams do not wait for the copy
        cublasHandle_t cublas = nullptr;
        check(cublasCreate(&cublas), "cublasCreate");
        check(cublasSetStream(cublas, share.streams[0]), "cublasSetStream");
        const float one = 1, none = 0;
        const auto* factor = reinterpret_cast<const float*>(a.get());
        check(cublasSgemm(cublas, CUBLAS_OP_N, CUBLAS_OP_N, kSide, kSide, kSide, &one, factor, kSide, factor, kSide,
                          &none, reinterpret_cast<float*>(b.get()), kSide),
              "cublasSgemm");
        wait_for(share.streams[0], kPatience);
        float got = 0;
        check(cudaMemcpy(&got, b.get(), sizeof got, cudaMemcpyDeviceToHost), "cudaMemcpy");
        if (got != kSide)
            fail_with(ExitCode::RunFailed, "{} instead of {}", got, kSide);
        return "";
    });
    probe("cuDNN on its stream, made inside of it", [&] {
        enter(share);
        (void)cudnn_on(share.streams[1]);
        return "";
    });
    return verdict();
}

// Captures: fills of single bytes, from one or two threads, each with a stream of its own.

enum class Threads { One, TakingTurns, AtOnce };
constexpr int kFills = 300;  // of each thread

void add_fills(cudaStream_t stream, std::byte* memory, std::mutex* turns) {
    for (int k = 0; k < kFills; ++k) {
        const auto lock = turns == nullptr ? std::unique_lock<std::mutex>() : std::unique_lock(*turns);
        check(cudaMemsetAsync(memory + k, 1, 1, stream), "cudaMemsetAsync");
    }
}

cudaGraph_t capture(const Share& share, std::byte* memory, Threads threads) {
    const Event fork(Event::Kind::Untimed), join(Event::Kind::Untimed);
    check(cudaStreamBeginCapture(share.streams[0], cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    std::mutex turns;
    std::mutex* const waits = threads == Threads::TakingTurns ? &turns : nullptr;
    if (threads == Threads::One) {
        add_fills(share.streams[0], memory, nullptr);
    } else {
        fork.record(share.streams[0]);
        fork.block(share.streams[1]);
        std::exception_ptr trouble;
        std::thread other([&] {
            try {
                add_fills(share.streams[1], memory + kFills, waits);
            } catch (...) {
                trouble = std::current_exception();
            }
        });
        try {
            add_fills(share.streams[0], memory, waits);
        } catch (...) {
            other.join();
            throw;
        }
        other.join();
        if (trouble)
            std::rethrow_exception(trouble);
        join.record(share.streams[1]);
        join.block(share.streams[0]);
    }
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(share.streams[0], &graph), "cudaStreamEndCapture");
    return graph;
}

int check_capture(const char* name, Threads threads) {
    probe(name, [&] {
        const Share share = make_share();
        const int fills = threads == Threads::One ? kFills : 2 * kFills;
        const DeviceMemory memory = allocate(fills);
        check(cudaMemset(memory.get(), 0, static_cast<std::size_t>(fills)), "cudaMemset");
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        cudaGraph_t graph = capture(share, memory.get(), threads);
        std::size_t nodes = 0;
        check(cudaGraphGetNodes(graph, nullptr, &nodes), "cudaGraphGetNodes");
        if (nodes != static_cast<std::size_t>(fills))
            fail_with(ExitCode::RunFailed, "{} calls became {} nodes", fills, nodes);
        cudaGraphExec_t launchable = nullptr;
        check(cudaGraphInstantiate(&launchable, graph, 0), "cudaGraphInstantiate");
        check(cudaGraphLaunch(launchable, share.streams[0]), "cudaGraphLaunch");
        wait_for(share.streams[0], kPatience);
        std::vector<char> got(static_cast<std::size_t>(fills));
        check(cudaMemcpy(got.data(), memory.get(), got.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
        if (const auto written = std::ranges::count(got, char{1}); written != fills)
            fail_with(ExitCode::RunFailed, "{} of {} fills were launched", written, fills);
        return fmt::format("{} nodes", nodes);
    });
    return verdict();
}

int check_one_thread(Arguments&) { return check_capture("a capture by one thread", Threads::One); }
int check_turns(Arguments&) { return check_capture("a capture by two threads that take turns", Threads::TakingTurns); }
int check_two_threads(Arguments&) {
    return check_capture("a capture by two threads at once, which CUDA does not promise", Threads::AtOnce);
}

// NCCL: a message to oneself, on a share.

int check_nccl(Arguments&) {
    Share share;
    std::unique_ptr<Communicator> communicator;
    probe("a communicator of one rank", [&] {
        share = make_share();
        communicator = std::make_unique<Communicator>(new_id(), 1, 0, "probe");
        communicator->wait(kPatience);
        return "";
    });
    if (failed_probes() > 0)
        return verdict();
    for (const Bytes bytes : {Bytes{1} << 16, Bytes{1} << 26})
        probe(fmt::format("{} to oneself", print_bytes(bytes)), [&] {
            const auto count = static_cast<std::size_t>(bytes);
            const DeviceMemory from = allocate(bytes), to = allocate(bytes);
            check(cudaMemset(from.get(), 7, count), "cudaMemset");
            check(cudaMemset(to.get(), 0, count), "cudaMemset");
            check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
            check(ncclGroupStart(), "ncclGroupStart");
            check(ncclSend(from.get(), count, ncclInt8, 0, communicator->get(), share.streams[0]), "ncclSend");
            check(ncclRecv(to.get(), count, ncclInt8, 0, communicator->get(), share.streams[0]), "ncclRecv");
            check(ncclGroupEnd(), "ncclGroupEnd");
            communicator->wait(kPatience);
            wait_for(share.streams[0], kPatience);
            std::vector<char> got(count);
            check(cudaMemcpy(got.data(), to.get(), count, cudaMemcpyDeviceToHost), "cudaMemcpy");
            if (!std::ranges::all_of(got, [](char byte) { return byte == 7; }))
                fail_with(ExitCode::RunFailed, "it arrived wrong");
            return "";
        });
    return verdict();
}

struct Part {
    const char* name;
    unsigned seconds;  // at most
    int (*check)(Arguments& arguments);
};
constexpr std::array kParts = {
    Part{"machine", 12, check_machine},           Part{"shares", 12, check_shares},
    Part{"convolutions", 25, check_convolutions}, Part{"one-thread", 6, check_one_thread},
    Part{"taking-turns", 6, check_turns},         Part{"nccl", 12, check_nccl},
    Part{"two-threads", 6, check_two_threads},    Part{"clusters", 20, check_clusters},
};

// A process of its own, begun before this one has touched the GPU.
int status_of(const Part& part, int count, char** values) {
    (void)std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const int status = measured(count, values, part.seconds, part.check);
        (void)std::fflush(stdout);
        _exit(status);  // skips the libraries' exit handlers, which are not part of the check
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return static_cast<int>(ExitCode::RunFailed);
    if (WIFSIGNALED(status))
        fmt::print("failed               part {}: ended by signal {}\n", part.name, WTERMSIG(status));
    else if (WEXITSTATUS(status) != kShown && WEXITSTATUS(status) != kNotShown && WEXITSTATUS(status) != kNoGpu)
        fmt::print("failed               part {}: ended with status {}\n", part.name, WEXITSTATUS(status));
    return WIFSIGNALED(status) ? kNotShown : WEXITSTATUS(status);
}

int check_all(int count, char** values) {
    Arguments arguments(count, values);
    const std::string only = arguments.text("--part", "");
    arguments.done();
    int parts = 0, worst = kShown;
    for (const Part& part : kParts) {
        if (!only.empty() && only != part.name)
            continue;
        ++parts;
        const int status = status_of(part, count, values);
        if (status == kNoGpu)
            return kNoGpu;
        worst = status == kShown ? worst : kNotShown;
    }
    if (parts == 0)
        fail("there is no part '{}'", only);
    return shown(worst == kShown, "the GPU, its driver and its libraries do what the backend asks of them");
}

}  // namespace
}  // namespace pw

int main(int count, char** values) {
    try {
        return pw::check_all(count, values);
    } catch (const pw::Error& error) {
        fmt::print(stderr, "error: {}\n", error.what());
        return static_cast<int>(error.code());
    }
}
