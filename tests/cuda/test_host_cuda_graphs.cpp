// Capture and graphs in the stand-in of CUDA: the captured work, its order, and the refused calls.
#include "tests/cuda/host_cuda/host_cuda.h"
#include "tests/support/cuda_ok.h"

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <atomic>
#include <mutex>
#include <thread>

namespace {

constexpr auto kRelaxed = cudaStreamCaptureModeRelaxed;

__global__ void add(float* to, const float* from, float more) { *to += *from + more; }

class HostCudaGraphs : public testing::Test {
protected:
    void SetUp() override {
        host_cuda::slow_streams(7);
        for (cudaStream_t& stream : streams)
            ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (cudaEvent_t& event : events)
            ASSERT_OK(cudaEventCreateWithFlags(&event, cudaEventDefault));
        ASSERT_OK(cudaMalloc(&values, 4 * sizeof(float)));
        ASSERT_OK(cudaHostAlloc(&pinned, 4 * sizeof(float), cudaHostAllocPortable));
        ASSERT_OK(cudaMemsetAsync(values, 0, 4 * sizeof(float), streams[0]));
        ASSERT_OK(cudaDeviceSynchronize());
    }
    void TearDown() override {
        for (cudaStream_t stream : streams)
            EXPECT_OK(cudaStreamDestroy(stream));
        for (cudaEvent_t event : events)
            EXPECT_OK(cudaEventDestroy(event));
        EXPECT_OK(cudaFree(values));
        EXPECT_OK(cudaFreeHost(pinned));
        cudaGetLastError();
        host_cuda::slow_streams(0);
    }

    // values[to] += values[from] + more
    cudaError_t launch(int to, int from, float more, cudaStream_t stream) {
        const cudaLaunchConfig_t config{1, 1, 0, stream, nullptr, 0};
        return cudaLaunchKernelEx(&config, add, values + to, values + from, more);
    }
    cudaError_t follow(cudaStream_t stream, cudaEvent_t event, cudaStream_t before) {
        const cudaError_t error = cudaEventRecord(event, before);
        return error != cudaSuccess ? error : cudaStreamWaitEvent(stream, event, 0);
    }
    cudaGraphExec_t end_capture(cudaStream_t stream) {
        cudaGraph_t graph{};
        cudaGraphExec_t executable{};
        EXPECT_OK(cudaStreamEndCapture(stream, &graph));
        EXPECT_OK(cudaGraphInstantiate(&executable, graph, 0));
        EXPECT_OK(cudaGraphDestroy(graph));
        return executable;
    }
    void expect_invalid_capture(cudaStream_t stream) {
        cudaStreamCaptureStatus status{};
        EXPECT_OK(cudaStreamIsCapturing(stream, &status));
        EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
        EXPECT_EQ(launch(0, 1, 1, stream), cudaErrorStreamCaptureInvalidated);
        cudaGraph_t graph{};
        EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
        EXPECT_EQ(graph, nullptr);
        EXPECT_OK(cudaStreamSynchronize(stream));
    }

    // Host work that ends when open() is called.
    cudaError_t close(cudaStream_t stream) {
        gate = false;
        const auto wait = [](void* open) {
            while (!static_cast<std::atomic<bool>*>(open)->load())
                std::this_thread::yield();
        };
        return cudaLaunchHostFunc(stream, wait, &gate);
    }
    void open() { gate = true; }

    cudaStream_t streams[3]{};
    cudaEvent_t events[3]{};
    float *values = nullptr, *pinned = nullptr;
    std::atomic<bool> gate{true};
};

TEST_F(HostCudaGraphs, RunWhenTheyAreLaunched) {
    cudaStreamCaptureStatus status{};
    void* memory = nullptr;
    float more = 1;
    ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
    EXPECT_OK(cudaStreamIsCapturing(streams[0], &status));
    EXPECT_EQ(status, cudaStreamCaptureStatusActive);
    ASSERT_OK(launch(0, 1, more, streams[0]));
    more = 100;  // has no effect: arguments are those of the capture
    EXPECT_OK(cudaMalloc(&memory, 4));
    EXPECT_OK(cudaFree(memory));
    ASSERT_OK(cudaMemcpyAsync(pinned, values, sizeof(float), cudaMemcpyDeviceToHost, streams[0]));
    const cudaGraphExec_t graph = end_capture(streams[0]);
    EXPECT_OK(cudaStreamIsCapturing(streams[0], &status));
    EXPECT_EQ(status, cudaStreamCaptureStatusNone);
    EXPECT_OK(cudaStreamSynchronize(streams[0]));
    EXPECT_EQ(values[0], 0);
    for (int i = 1; i <= 20; ++i) {
        ASSERT_OK(launch(1, 1, 1, streams[1]));  // changes the value that the graph reads next
        ASSERT_OK(cudaGraphLaunch(graph, streams[1]));
        ASSERT_OK(cudaMemcpyAsync(pinned + 1, pinned, sizeof(float), cudaMemcpyHostToHost, streams[1]));
        ASSERT_OK(cudaMemsetAsync(pinned, 0, sizeof(float), streams[1]));
        ASSERT_OK(cudaMemsetAsync(values, 0, sizeof(float), streams[1]));
        ASSERT_OK(cudaMemcpyAsync(values + 1, pinned + 1, sizeof(float), cudaMemcpyHostToDevice, streams[1]));
    }
    ASSERT_OK(cudaStreamSynchronize(streams[1]));
    EXPECT_EQ(pinned[1], 2 * ((1 << 20) - 1));  // x -> x + 2, doubled
    EXPECT_OK(cudaGraphExecDestroy(graph));
}

TEST_F(HostCudaGraphs, ForkAndJoinStreams) {
    ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
    ASSERT_OK(launch(0, 3, 1, streams[0]));  // 3 stays zero
    ASSERT_OK(follow(streams[1], events[0], streams[0]));
    ASSERT_OK(cudaStreamWaitEvent(streams[2], events[0], 0));
    ASSERT_OK(launch(1, 0, 0, streams[1]));
    ASSERT_OK(launch(2, 0, 0, streams[2]));
    ASSERT_OK(follow(streams[2], events[1], streams[1]));
    ASSERT_OK(follow(streams[0], events[2], streams[2]));  // after both, although there is no work in between
    ASSERT_OK(launch(0, 1, 0, streams[0]));
    ASSERT_OK(launch(0, 2, 0, streams[0]));
    const cudaGraphExec_t graph = end_capture(streams[0]);
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        host_cuda::slow_streams(seed);
        ASSERT_OK(cudaMemsetAsync(values, 0, 4 * sizeof(float), streams[0]));
        ASSERT_OK(cudaGraphLaunch(graph, streams[0]));
        ASSERT_OK(cudaGraphLaunch(graph, streams[0]));
        ASSERT_OK(cudaStreamSynchronize(streams[0]));
        EXPECT_EQ(values[1], 5);  // 1, 1 + (3 + 1)
        EXPECT_EQ(values[0], 14);
    }
    ASSERT_OK(launch(1, 3, 0, streams[1]));  // the stream no longer captures
    EXPECT_OK(cudaStreamSynchronize(streams[1]));
    EXPECT_OK(cudaGraphExecDestroy(graph));
}

TEST_F(HostCudaGraphs, BranchesDoNotWaitForEachOther) {
    ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
    ASSERT_OK(follow(streams[1], events[0], streams[0]));
    ASSERT_OK(close(streams[1]));
    ASSERT_OK(cudaLaunchHostFunc(
        streams[0], [](void* other) { static_cast<std::atomic<bool>*>(other)->store(true); }, &gate));
    ASSERT_OK(follow(streams[0], events[1], streams[1]));
    const cudaGraphExec_t graph = end_capture(streams[0]);
    ASSERT_OK(cudaGraphLaunch(graph, streams[2]));
    EXPECT_OK(cudaStreamSynchronize(streams[2]));
    EXPECT_OK(cudaGraphExecDestroy(graph));
}

TEST_F(HostCudaGraphs, LaunchesOfOneGraphFollowEachOther) {
    ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
    ASSERT_OK(launch(0, 1, 1, streams[0]));
    const cudaGraphExec_t graph = end_capture(streams[0]);
    ASSERT_OK(close(streams[0]));
    ASSERT_OK(cudaGraphLaunch(graph, streams[0]));
    ASSERT_OK(cudaGraphLaunch(graph, streams[1]));
    EXPECT_OK(cudaGraphExecDestroy(graph));  // after its launches
    EXPECT_EQ(cudaStreamQuery(streams[1]), cudaErrorNotReady);
    EXPECT_OK(cudaStreamQuery(streams[2]));
    open();
    EXPECT_OK(cudaStreamSynchronize(streams[1]));
    EXPECT_EQ(values[0], 2);
    EXPECT_EQ(cudaGraphLaunch(graph, streams[0]), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGraphLaunch(nullptr, streams[0]), cudaErrorInvalidValue);
}

TEST_F(HostCudaGraphs, RecordExternalEventsAtEachLaunch) {
    float ms = -1;
    EXPECT_EQ(cudaEventRecordWithFlags(events[0], streams[0], cudaEventRecordExternal), cudaErrorInvalidValue);
    ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
    ASSERT_OK(cudaEventRecordWithFlags(events[0], streams[0], cudaEventRecordExternal));
    ASSERT_OK(close(streams[0]));
    ASSERT_OK(cudaEventRecordWithFlags(events[1], streams[0], cudaEventRecordExternal));
    const cudaGraphExec_t graph = end_capture(streams[0]);
    EXPECT_EQ(cudaEventElapsedTime(&ms, events[0], events[1]), cudaErrorInvalidResourceHandle);  // not recorded
    for (int i = 0; i < 3; ++i) {
        gate = false;
        ASSERT_OK(cudaGraphLaunch(graph, streams[0]));
        EXPECT_OK(cudaEventSynchronize(events[0]));
        EXPECT_EQ(cudaEventQuery(events[1]), cudaErrorNotReady);
        EXPECT_EQ(cudaEventElapsedTime(&ms, events[0], events[1]), cudaErrorNotReady);
        ASSERT_OK(cudaStreamWaitEvent(streams[1], events[1], 0));
        EXPECT_EQ(cudaStreamQuery(streams[1]), cudaErrorNotReady);
        open();
        EXPECT_OK(cudaEventSynchronize(events[1]));
        EXPECT_OK(cudaEventElapsedTime(&ms, events[0], events[1]));
        EXPECT_GT(ms, 0);
        EXPECT_OK(cudaStreamSynchronize(streams[1]));
    }
    EXPECT_OK(cudaGraphExecDestroy(graph));
}

TEST_F(HostCudaGraphs, AreCapturedByTwoThreadsInTurn) {
    std::mutex turn;
    const auto in_turn = [&](auto&& call) {
        const std::lock_guard lock(turn);
        EXPECT_OK(call());
    };
    ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
    ASSERT_OK(follow(streams[1], events[0], streams[0]));
    std::thread other([&] {
        for (int i = 0; i < 50; ++i)
            in_turn([&] { return launch(1, 3, 1, streams[1]); });
        in_turn([&] { return cudaStreamWaitEvent(streams[2], events[0], 0); });
        in_turn([&] { return launch(2, 3, 1, streams[2]); });
        in_turn([&] { return follow(streams[1], events[2], streams[2]); });
        in_turn([&] { return cudaEventRecord(events[1], streams[1]); });
    });
    for (int i = 0; i < 50; ++i)
        in_turn([&] { return launch(0, 3, 1, streams[0]); });
    other.join();
    ASSERT_OK(cudaStreamWaitEvent(streams[0], events[1], 0));
    ASSERT_OK(launch(0, 1, 0, streams[0]));
    ASSERT_OK(launch(0, 2, 0, streams[0]));
    cudaGraphExec_t graph{};
    std::thread([&] { graph = end_capture(streams[0]); }).join();
    ASSERT_OK(cudaGraphLaunch(graph, nullptr));
    ASSERT_OK(cudaStreamSynchronize(nullptr));
    EXPECT_EQ(values[0], 101);
    EXPECT_OK(cudaGraphExecDestroy(graph));
}

TEST_F(HostCudaGraphs, AreSpoiledByTwoThreadsAtATime) {
    ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
    ASSERT_OK(follow(streams[1], events[0], streams[0]));
    std::atomic<bool> spoiled{false};
    const auto add_many = [&](int stream) {
        while (!spoiled)
            spoiled = spoiled || launch(stream, 3, 1, streams[stream]) != cudaSuccess;
    };
    std::thread other(add_many, 1);
    add_many(0);
    other.join();
    expect_invalid_capture(streams[0]);
}

TEST_F(HostCudaGraphs, CaptureLibrariesButNotTransfers) {
    cublasHandle_t products{};
    ncclComm_t communicator{};
    ASSERT_EQ(cublasCreate(&products), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasSetStream(products, streams[0]), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(ncclCommInitAll(&communicator, 1, nullptr), ncclSuccess);
    const float one = 1, zero = 0;
    ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
    ASSERT_OK(launch(0, 3, 3, streams[0]));
    ASSERT_EQ(cublasGemmEx(products, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, values, CUDA_R_32F, 1, values, CUDA_R_32F,
                           1, &zero, values + 1, CUDA_R_32F, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(ncclSend(values, 4, ncclInt8, 0, communicator, streams[0]), ncclInvalidUsage);
    const cudaGraphExec_t graph = end_capture(streams[0]);
    ASSERT_OK(cudaGraphLaunch(graph, streams[0]));
    ASSERT_OK(cudaGraphLaunch(graph, streams[0]));
    ASSERT_OK(cudaStreamSynchronize(streams[0]));
    EXPECT_EQ(values[1], 36);
    EXPECT_OK(cudaGraphExecDestroy(graph));
    EXPECT_EQ(cublasDestroy(products), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(ncclCommDestroy(communicator), ncclSuccess);
}

TEST_F(HostCudaGraphs, NeedTheirStreamsJoined) {
    cudaGraph_t graph{};
    ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
    ASSERT_OK(follow(streams[1], events[0], streams[0]));
    ASSERT_OK(launch(1, 0, 1, streams[1]));
    ASSERT_OK(follow(streams[0], events[1], streams[1]));
    ASSERT_OK(launch(1, 0, 1, streams[1]));  // after the join
    EXPECT_EQ(cudaStreamEndCapture(streams[1], &graph), cudaErrorStreamCaptureUnmatched);
    EXPECT_EQ(cudaStreamEndCapture(streams[0], &graph), cudaErrorStreamCaptureUnjoined);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(cudaStreamEndCapture(streams[0], &graph), cudaErrorIllegalState);
    EXPECT_OK(cudaStreamSynchronize(streams[1]));
    ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
    EXPECT_EQ(cudaStreamBeginCapture(streams[0], kRelaxed), cudaErrorIllegalState);
    ASSERT_OK(follow(streams[1], events[0], streams[0]));  // joins without work
    ASSERT_OK(cudaStreamEndCapture(streams[0], &graph));
    EXPECT_OK(cudaGraphDestroy(graph));
    EXPECT_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);
    EXPECT_EQ(cudaStreamBeginCapture(nullptr, kRelaxed), cudaErrorStreamCaptureUnsupported);
}

TEST_F(HostCudaGraphs, AreNotWaitedForWhileTheyAreCaptured) {
    const auto refused = [&](auto&& call) {
        ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
        EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
        EXPECT_EQ(cudaGetLastError(), cudaErrorStreamCaptureUnsupported);
        expect_invalid_capture(streams[0]);
    };
    float pageable = 0;
    refused([&] { return cudaStreamSynchronize(streams[0]); });
    refused([&] { return cudaStreamQuery(streams[0]); });
    refused([&] { return cudaDeviceSynchronize(); });
    refused([&] { return cudaMemcpyAsync(&pageable, values, 4, cudaMemcpyDeviceToHost, streams[0]); });
}

TEST_F(HostCudaGraphs, RefuseOtherUsesOfTheirEvents) {
    float ms = 0;
    const auto captured = [&](auto&& call) {
        ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
        ASSERT_OK(cudaEventRecord(events[0], streams[0]));
        EXPECT_EQ(call(), cudaErrorCapturedEvent);
        expect_invalid_capture(streams[0]);
        EXPECT_EQ(call(), cudaErrorCapturedEvent);  // also after the capture
        ASSERT_OK(cudaEventRecord(events[0], streams[0]));
        EXPECT_OK(cudaEventSynchronize(events[0]));
        EXPECT_OK(call());
    };
    ASSERT_OK(cudaEventRecord(events[1], streams[0]));
    captured([&] { return cudaEventQuery(events[0]); });
    captured([&] { return cudaEventSynchronize(events[0]); });
    captured([&] { return cudaEventElapsedTime(&ms, events[1], events[0]); });

    cudaGraph_t graph{};
    ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
    ASSERT_OK(cudaEventRecord(events[0], streams[0]));
    EXPECT_EQ(cudaStreamWaitEvent(nullptr, events[0], 0), cudaErrorStreamCaptureImplicit);
    ASSERT_OK(cudaStreamEndCapture(streams[0], &graph));
    EXPECT_EQ(cudaStreamWaitEvent(streams[1], events[0], 0), cudaErrorCapturedEvent);
    EXPECT_OK(cudaGraphDestroy(graph));
}

TEST_F(HostCudaGraphs, DoNotDependOnWorkOutside) {
    ASSERT_OK(cudaEventRecord(events[0], streams[1]));
    ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
    EXPECT_EQ(cudaStreamWaitEvent(streams[0], events[0], 0), cudaErrorStreamCaptureIsolation);
    expect_invalid_capture(streams[0]);
    ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
    ASSERT_OK(cudaEventRecordWithFlags(events[2], streams[0], cudaEventRecordExternal));
    EXPECT_EQ(cudaStreamWaitEvent(streams[0], events[2], 0), cudaErrorStreamCaptureIsolation);
    expect_invalid_capture(streams[0]);
    ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
    ASSERT_OK(cudaStreamBeginCapture(streams[1], kRelaxed));
    ASSERT_OK(cudaEventRecord(events[1], streams[1]));
    EXPECT_EQ(cudaStreamWaitEvent(streams[0], events[1], 0), cudaErrorStreamCaptureMerge);
    expect_invalid_capture(streams[0]);
    cudaGraphExec_t graph = end_capture(streams[1]), other{};
    ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
    EXPECT_EQ(cudaGraphLaunch(graph, streams[0]), cudaErrorNotSupported);
    other = end_capture(streams[0]);
    EXPECT_OK(cudaGraphExecDestroy(graph));
    EXPECT_OK(cudaGraphExecDestroy(other));
}

TEST_F(HostCudaGraphs, ForbidMoreCallsUnlessRelaxed) {
    void* memory = nullptr;
    cudaGraph_t graph{};
    const auto in_thread = [](auto&& call) {
        cudaError_t error{};
        std::thread([&] { error = call(); }).join();
        return error;
    };
    const auto allocate = [&] { return cudaMalloc(&memory, 4); };
    ASSERT_OK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal));
    EXPECT_OK(in_thread(allocate));
    EXPECT_EQ(in_thread([&] { return cudaStreamEndCapture(streams[0], &graph); }), cudaErrorStreamCaptureWrongThread);
    EXPECT_EQ(cudaFree(memory), cudaErrorStreamCaptureUnsupported);
    expect_invalid_capture(streams[0]);
    EXPECT_OK(cudaFree(memory));
    ASSERT_OK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal));
    EXPECT_EQ(in_thread(allocate), cudaErrorStreamCaptureUnsupported);
    expect_invalid_capture(streams[0]);
}

TEST_F(HostCudaGraphs, MayBeAbandoned) {
    cudaGraph_t graph{};
    cudaStream_t brief{};
    ASSERT_OK(cudaStreamCreateWithFlags(&brief, cudaStreamNonBlocking));
    ASSERT_OK(cudaStreamBeginCapture(streams[0], kRelaxed));
    ASSERT_OK(follow(brief, events[0], streams[0]));
    ASSERT_OK(cudaStreamDestroy(brief));
    EXPECT_EQ(cudaStreamEndCapture(streams[0], &graph), cudaErrorStreamCaptureInvalidated);
    ASSERT_OK(cudaStreamCreateWithFlags(&brief, cudaStreamNonBlocking));
    ASSERT_OK(cudaStreamBeginCapture(brief, cudaStreamCaptureModeGlobal));
    ASSERT_OK(follow(streams[0], events[0], brief));
    ASSERT_OK(cudaStreamDestroy(brief));
    EXPECT_OK(cudaStreamSynchronize(streams[0]));
}

}  // namespace
