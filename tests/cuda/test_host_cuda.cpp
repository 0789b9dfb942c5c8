// The stand-in of CUDA for other tests: the order of work and its absence, memory, and the arithmetic of its
// libraries.
#include "tests/cuda/host_cuda/host_cuda.h"
#include "tests/support/cuda_ok.h"

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

namespace {

constexpr int kValues = 1000;

__global__ void add_one(float* values, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count)
        values[i] += 1;
}

cudaError_t launch_add_one(float* values, cudaStream_t stream) {
    const cudaLaunchConfig_t config{(kValues + 127) / 128, 128, 0, stream, nullptr, 0};
    return cudaLaunchKernelEx(&config, add_one, values, kValues);
}

class HostCuda : public testing::Test {
protected:
    void SetUp() override {
        host_cuda::set_devices(2);
        ASSERT_OK(cudaSetDevice(0));
        for (cudaStream_t& stream : streams)
            ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (cudaEvent_t& event : events)
            ASSERT_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        ASSERT_OK(cudaMalloc(&values, kValues * sizeof(float)));
        ASSERT_OK(cudaHostAlloc(&pinned, kValues * sizeof(float), cudaHostAllocPortable));
    }
    void TearDown() override {
        host_cuda::slow_streams(0);
        EXPECT_OK(cudaSetDevice(0));
        for (cudaStream_t stream : streams)
            EXPECT_OK(cudaStreamDestroy(stream));
        for (cudaEvent_t event : events)
            EXPECT_OK(cudaEventDestroy(event));
        EXPECT_OK(cudaFree(values));
        EXPECT_OK(cudaFreeHost(pinned));
        host_cuda::set_memory(std::size_t{1} << 30);
        host_cuda::set_peer_access(false);  // this also disables enabled access
        host_cuda::set_peer_access(true);
        host_cuda::set_devices(1);
        cudaGetLastError();
    }

    // Occupies the stream until open() is called.
    void close(cudaStream_t stream) {
        gate = false;
        const auto wait = [](void* open) {
            while (!static_cast<std::atomic<bool>*>(open)->load())
                std::this_thread::yield();
        };
        ASSERT_OK(cudaLaunchHostFunc(stream, wait, &gate));
    }
    void open() { gate = true; }

    cudaStream_t streams[2]{};
    cudaEvent_t events[2]{};
    float *values = nullptr, *pinned = nullptr;
    std::atomic<bool> gate{true};
};

TEST_F(HostCuda, RunsAStreamInOrder) {
    host_cuda::slow_streams(7);
    ASSERT_OK(cudaMemsetAsync(values, 0, kValues * sizeof(float), streams[0]));
    for (int i = 0; i < 50; ++i)
        ASSERT_OK(launch_add_one(values, streams[0]));
    ASSERT_OK(cudaMemcpyAsync(pinned, values, kValues * sizeof(float), cudaMemcpyDeviceToHost, streams[0]));
    ASSERT_OK(cudaStreamSynchronize(streams[0]));
    EXPECT_EQ(std::vector<float>(pinned, pinned + kValues), std::vector<float>(kValues, 50));
}

TEST_F(HostCuda, DoesNotWait) {
    close(streams[0]);
    ASSERT_OK(cudaMemsetAsync(values, 0, 4, streams[0]));
    ASSERT_OK(cudaEventRecord(events[0], streams[0]));
    EXPECT_EQ(cudaStreamQuery(streams[0]), cudaErrorNotReady);
    EXPECT_EQ(cudaEventQuery(events[0]), cudaErrorNotReady);
    EXPECT_OK(cudaStreamQuery(streams[1]));
    EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    open();
    EXPECT_OK(cudaEventSynchronize(events[0]));
    EXPECT_OK(cudaEventQuery(events[0]));
    EXPECT_EQ(values[0], 0);
}

// A run has dozens of streams. If each stream looked for work every millisecond, the streams of a few processes would
// fill a core.
TEST_F(HostCuda, StreamsSleepUntilTheyHaveWork) {
    std::vector<cudaStream_t> idle(16);
    for (cudaStream_t& stream : idle)
        ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (const cudaStream_t stream : idle)
        EXPECT_OK(cudaStreamSynchronize(stream));
    const auto sleeps = [] {
        rusage usage{};
        getrusage(RUSAGE_SELF, &usage);
        return usage.ru_nvcsw;
    };
    const long before = sleeps();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_LT(sleeps() - before, 50);
    for (const cudaStream_t stream : idle)
        EXPECT_OK(cudaStreamDestroy(stream));
}

TEST_F(HostCuda, OrdersStreamsByEvents) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        host_cuda::slow_streams(seed);
        ASSERT_OK(cudaMemsetAsync(values, 0, kValues * sizeof(float), streams[0]));
        for (int i = 0; i < 10; ++i) {
            ASSERT_OK(launch_add_one(values, streams[i % 2]));
            ASSERT_OK(cudaEventRecord(events[i % 2], streams[i % 2]));
            ASSERT_OK(cudaStreamWaitEvent(streams[1 - i % 2], events[i % 2], 0));
        }
        ASSERT_OK(cudaStreamSynchronize(streams[0]));
        EXPECT_EQ(values[kValues - 1], 10);
    }
}

TEST_F(HostCuda, WaitsForTheLastRecordingAtTheCall) {
    ASSERT_OK(cudaStreamWaitEvent(streams[1], events[0], 0));  // there is none yet
    ASSERT_OK(cudaStreamSynchronize(streams[1]));
    ASSERT_OK(cudaEventRecord(events[0], streams[0]));
    ASSERT_OK(cudaStreamWaitEvent(streams[1], events[0], 0));
    close(streams[0]);
    ASSERT_OK(cudaEventRecord(events[0], streams[0]));  // the wait above is not for this one
    EXPECT_OK(cudaStreamSynchronize(streams[1]));
    ASSERT_OK(cudaStreamWaitEvent(streams[1], events[0], 0));
    EXPECT_EQ(cudaStreamQuery(streams[1]), cudaErrorNotReady);
    open();
    EXPECT_OK(cudaDeviceSynchronize());
    EXPECT_OK(cudaStreamQuery(streams[1]));
}

TEST_F(HostCuda, KeepsARecordingOfADestroyedEvent) {
    cudaEvent_t event{};
    ASSERT_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    close(streams[0]);
    ASSERT_OK(cudaEventRecord(event, streams[0]));
    ASSERT_OK(cudaStreamWaitEvent(streams[1], event, 0));
    ASSERT_OK(cudaEventDestroy(event));
    EXPECT_EQ(cudaStreamQuery(streams[1]), cudaErrorNotReady);
    open();
    EXPECT_OK(cudaStreamSynchronize(streams[1]));
}

TEST_F(HostCuda, MeasuresTimeBetweenTimedEvents) {
    cudaEvent_t from{}, to{};
    float ms = -1;
    ASSERT_OK(cudaEventCreateWithFlags(&from, cudaEventDefault));
    ASSERT_OK(cudaEventCreateWithFlags(&to, cudaEventBlockingSync));
    ASSERT_OK(cudaEventRecordWithFlags(from, streams[0], cudaEventRecordDefault));
    EXPECT_EQ(cudaEventElapsedTime(&ms, from, to), cudaErrorInvalidResourceHandle);  // not recorded
    close(streams[0]);
    ASSERT_OK(cudaEventRecord(to, streams[0]));
    EXPECT_EQ(cudaEventElapsedTime(&ms, from, to), cudaErrorNotReady);
    open();
    ASSERT_OK(cudaEventSynchronize(to));
    EXPECT_OK(cudaEventElapsedTime(&ms, from, to));
    EXPECT_GT(ms, 0);
    ASSERT_OK(cudaEventRecord(events[0], streams[0]));
    ASSERT_OK(cudaStreamSynchronize(streams[0]));
    EXPECT_EQ(cudaEventElapsedTime(&ms, from, events[0]), cudaErrorInvalidResourceHandle);  // untimed
    EXPECT_OK(cudaEventDestroy(from));
    EXPECT_OK(cudaEventDestroy(to));
}

TEST_F(HostCuda, CountsMemory) {
    host_cuda::set_memory(kValues * sizeof(float) + 100);
    void *first = nullptr, *second = nullptr;
    std::size_t free = 0, total = 0;
    EXPECT_EQ(cudaMalloc(&first, 101), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    ASSERT_OK(cudaMalloc(&first, 60));
    EXPECT_EQ(cudaMalloc(&second, 60), cudaErrorMemoryAllocation);
    EXPECT_EQ(host_cuda::allocated(0), kValues * sizeof(float) + 60);
    EXPECT_OK(cudaMemGetInfo(&free, &total));
    EXPECT_EQ(free, 40u);
    EXPECT_TRUE(std::isnan(*static_cast<float*>(first)));
    ASSERT_OK(cudaFree(first));
    EXPECT_EQ(cudaFree(first), cudaErrorInvalidValue);
    EXPECT_OK(cudaFree(nullptr));
    EXPECT_EQ(host_cuda::allocated(0), kValues * sizeof(float));
}

TEST_F(HostCuda, RefusesMemoryThatTheDeviceCannotReach) {
    std::vector<float> pageable(kValues);
    EXPECT_EQ(launch_add_one(pageable.data(), streams[0]), cudaErrorIllegalAddress);
    EXPECT_OK(launch_add_one(pinned, streams[0]));
    EXPECT_EQ(cudaMemcpyAsync(pinned, values, 4, cudaMemcpyHostToDevice, streams[0]), cudaErrorInvalidValue);
    float* elsewhere = nullptr;
    ASSERT_OK(cudaSetDevice(1));
    ASSERT_OK(cudaMalloc(&elsewhere, kValues * sizeof(float)));
    EXPECT_EQ(launch_add_one(elsewhere, streams[0]), cudaErrorInvalidResourceHandle);  // a stream of device 0
    ASSERT_OK(cudaSetDevice(0));
    EXPECT_EQ(launch_add_one(elsewhere, streams[0]), cudaErrorIllegalAddress);
    host_cuda::set_peer_access(false);
    EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessUnsupported);
    host_cuda::set_peer_access(true);
    int possible = 0;
    EXPECT_OK(cudaDeviceCanAccessPeer(&possible, 0, 1));
    EXPECT_TRUE(possible);
    EXPECT_OK(cudaDeviceEnablePeerAccess(1, 0));
    EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    EXPECT_OK(launch_add_one(elsewhere, streams[0]));
    EXPECT_OK(cudaStreamSynchronize(streams[0]));
    EXPECT_OK(cudaMemcpyPeerAsync(values, 0, elsewhere, 1, 4, streams[0]));
    EXPECT_EQ(cudaMemcpyPeerAsync(values, 1, elsewhere, 0, 4, streams[0]), cudaErrorInvalidValue);
    EXPECT_OK(cudaStreamSynchronize(streams[0]));  // cudaFree waits for the streams of its own device
    EXPECT_OK(cudaFree(elsewhere));
}

TEST_F(HostCuda, WaitsIfMemoryIsNotPinned) {
    std::vector<float> pageable(kValues, 3);
    ASSERT_OK(cudaMemcpyAsync(values, pageable.data(), kValues * sizeof(float), cudaMemcpyHostToDevice, streams[0]));
    pageable.assign(kValues, 0);
    ASSERT_OK(launch_add_one(values, streams[0]));
    ASSERT_OK(cudaMemcpyAsync(pageable.data(), values, kValues * sizeof(float), cudaMemcpyDefault, streams[0]));
    EXPECT_EQ(pageable, std::vector<float>(kValues, 4));
    pageable.assign(kValues, 5);
    ASSERT_OK(cudaMemcpy(values, pageable.data(), kValues * sizeof(float), cudaMemcpyHostToDevice));
    EXPECT_EQ(values[0], 5);
}

TEST_F(HostCuda, MayHaveNoDevice) {
    host_cuda::set_devices(0);
    int count = -1;
    void* memory = nullptr;
    EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    EXPECT_EQ(count, 0);
    EXPECT_EQ(cudaSetDevice(0), cudaErrorNoDevice);
    EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorNoDevice);
    EXPECT_STREQ(cudaGetErrorName(cudaErrorNoDevice), "cudaErrorNoDevice");
    host_cuda::set_devices(2);
}

TEST_F(HostCuda, RefusesCallsFromAHostFunction) {
    static cudaError_t error;
    error = cudaSuccess;
    const auto call = [](void* memory) { error = cudaMemsetAsync(memory, 0, 4, nullptr); };
    ASSERT_OK(cudaLaunchHostFunc(streams[0], call, values));
    ASSERT_OK(cudaStreamSynchronize(streams[0]));
    EXPECT_EQ(error, cudaErrorNotPermitted);
}

TEST_F(HostCuda, ResetsADevice) {
    ASSERT_OK(cudaSetDevice(1));
    void* memory = nullptr;
    cudaStream_t stream{};
    ASSERT_OK(cudaMalloc(&memory, 1000));
    ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ASSERT_OK(cudaMemsetAsync(memory, 0, 1000, stream));
    ASSERT_OK(cudaDeviceReset());
    EXPECT_EQ(host_cuda::allocated(1), 0u);
}

template <class F>
F driver_function(const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    EXPECT_OK(cudaGetDriverEntryPointByVersion(name, &function, 13000, cudaEnableDefault, &found));
    EXPECT_EQ(found == cudaDriverEntryPointSuccess, function != nullptr);
    return reinterpret_cast<F>(function);
}
#define DRIVER(name) driver_function<decltype(&name)>(#name)

TEST_F(HostCuda, SplitsMultiprocessors) {
    EXPECT_EQ(driver_function<void (*)()>("cuGreenCtxBake"), nullptr);
    CUdevice device = -1;
    CUdevResource all{}, rest{}, got{};
    unsigned n = 0;
    ASSERT_EQ(DRIVER(cuDeviceGet)(&device, 0), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuDeviceGetDevResource)(device, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS);
    EXPECT_EQ(all.sm.smCount, 132u);
    const auto split = DRIVER(cuDevSmResourceSplitByCount);
    ASSERT_EQ(split(nullptr, &n, &all, nullptr, 0, 8), CUDA_SUCCESS);
    ASSERT_EQ(n, 16u);
    std::vector<CUdevResource> groups(n);
    ASSERT_EQ(split(groups.data(), &n, &all, &rest, 0, 8), CUDA_SUCCESS);
    EXPECT_EQ(rest.sm.smCount, 4u);
    CUdevResourceDesc description{};
    CUgreenCtx context{};
    cudaStream_t stream{};
    ASSERT_EQ(DRIVER(cuDevResourceGenerateDesc)(&description, &groups[2], 3), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuGreenCtxCreate)(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuGreenCtxGetDevResource)(context, &got, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS);
    EXPECT_EQ(got.sm.smCount, 24u);
    ASSERT_EQ(DRIVER(cuGreenCtxStreamCreate)(&stream, context, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    ASSERT_OK(cudaMemsetAsync(values, 0, kValues * sizeof(float), stream));
    ASSERT_OK(launch_add_one(values, stream));
    ASSERT_OK(cudaStreamDestroy(stream));
    EXPECT_EQ(values[1], 1);
    EXPECT_EQ(DRIVER(cuGreenCtxDestroy)(context), CUDA_SUCCESS);
}

TEST(HostBfloat16, RoundsToTheNearestEven) {
    const auto rounded = [](float x) { return __bfloat162float(__float2bfloat16_rn(x)); };
    static_assert(sizeof(__nv_bfloat16) == 2 && std::is_trivially_copyable_v<__nv_bfloat16>);
    EXPECT_EQ(rounded(1 + 1.f / 256), 1);              // a tie
    EXPECT_EQ(rounded(1 + 3.f / 256), 1 + 4.f / 256);  // a tie
    EXPECT_EQ(rounded(-1 - 1.01f / 256), -1 - 2.f / 256);
    EXPECT_EQ(rounded(3.4e38f), INFINITY);
    EXPECT_EQ(rounded(-INFINITY), -INFINITY);
    EXPECT_TRUE(std::isnan(rounded(NAN)));
}

}  // namespace
