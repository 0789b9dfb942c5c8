#include "bench/gpu/measuring.h"

#include "exec/cuda/backend.h"
#include "exec/engine/mailbox.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace pw {

namespace {

extern "C" void end_late(int) {
    constexpr char kText[] = "error: not done by the deadline\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
    _exit(static_cast<int>(ExitCode::PeerSilent));
}

void hide_other_gpus() {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    const std::string all = visible == nullptr ? "0" : visible;
    setenv("CUDA_VISIBLE_DEVICES", all.substr(0, all.find(',')).c_str(), 1);
}

}  // namespace

std::string Arguments::text(const std::string& name, const std::string& otherwise) {
    const auto found = std::ranges::find(rest_, name);
    if (found == rest_.end())
        return otherwise;
    if (found + 1 == rest_.end())
        fail("{} needs a value", name);
    const std::string value = found[1];
    rest_.erase(found, found + 2);
    return value;
}

int Arguments::number(const std::string& name, int otherwise) {
    const std::string value = text(name, std::to_string(otherwise));
    char* end = nullptr;
    const long number = std::strtol(value.c_str(), &end, 10);
    if (*end != '\0' || number < 1 || number > 1'000'000)
        fail("{} {} is not a number from 1 to 1000000", name, value);
    return static_cast<int>(number);
}

bool Arguments::flag(const std::string& name) { return std::erase(rest_, name) > 0; }

void Arguments::done() const {
    if (!rest_.empty())
        fail("there is no argument '{}'", rest_.front());
}

int measured(int count, char** values, unsigned seconds, int (*measure)(Arguments& arguments)) {
    (void)std::setvbuf(stdout, nullptr, _IOLBF, 0);  // so that an early end loses no lines
    (void)std::signal(SIGALRM, end_late);
    alarm(seconds);
    hide_other_gpus();
    if (const std::string status = cuda_status(); status != "ready") {
        fmt::print(stderr, "SKIPPED: {}\n", status);
        return kNoGpu;
    }
    try {
        Arguments arguments(count, values);
        return measure(arguments);
    } catch (const Error& error) {
        fmt::print(stderr, "error: {}\n", error.what());
        return static_cast<int>(error.code());
    } catch (const std::exception& error) {
        fmt::print(stderr, "error: {}\n", error.what());
        return static_cast<int>(ExitCode::RunFailed);
    }
}

void wait_for(cudaStream_t stream, Ns timeout) {
    const Ns start = clock_now();
    for (;;) {
        const cudaError_t status = cudaStreamQuery(stream);
        if (status != cudaErrorNotReady)
            return cuda::check(status, "cudaStreamQuery");
        if (clock_now() - start > timeout)
            fail_with(ExitCode::PeerSilent, "a stream has work left after {}", print_time(timeout));
        std::this_thread::yield();
    }
}

int shown(bool really, const std::string& what) {
    fmt::print("{}: {}\n", really ? "shown" : "NOT SHOWN", what);
    return really ? kShown : kNotShown;
}

}  // namespace pw
