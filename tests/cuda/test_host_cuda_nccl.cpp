// NCCL in the stand-in of CUDA: transfers between ranks, in order, in groups, and when they fail.
#include "tests/cuda/host_cuda/host_cuda.h"
#include "tests/support/cuda_ok.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int kBytes = 4096;

// One communicator, two streams and four buffers of kBytes for each of two devices; the bytes of a buffer are 10 *
// device + its number.
class HostNccl : public testing::Test {
protected:
    void SetUp() override {
        host_cuda::set_devices(2);
        for (int device = 0; device < 2; ++device) {
            ASSERT_OK(cudaSetDevice(device));
            for (cudaStream_t& stream : streams[device])
                ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            for (int place = 0; place < 4; ++place) {
                ASSERT_OK(cudaMalloc(&buffers[device][place], kBytes));
                ASSERT_OK(cudaMemsetAsync(buffers[device][place], 10 * device + place, kBytes, streams[device][0]));
            }
            ASSERT_OK(cudaDeviceSynchronize());
        }
        ASSERT_OK(ncclCommInitAll(comms, 2, nullptr));
    }
    void TearDown() override {
        for (int device = 0; device < 2; ++device) {
            EXPECT_OK(cudaSetDevice(device));
            for (cudaStream_t stream : streams[device])
                EXPECT_OK(cudaStreamDestroy(stream));
            for (char* buffer : buffers[device])
                EXPECT_OK(cudaFree(buffer));
        }
        EXPECT_OK(cudaSetDevice(0));
        host_cuda::slow_streams(0);
        host_cuda::set_devices(1);
    }
    ncclResult_t send(int device, int place, int lane = 0) {
        return ncclSend(buffers[device][place], kBytes, ncclInt8, 1 - device, comms[device], streams[device][lane]);
    }
    ncclResult_t recv(int device, int place, int lane = 0) {
        return ncclRecv(buffers[device][place], kBytes, ncclUint8, 1 - device, comms[device], streams[device][lane]);
    }
    void synchronize(int device, int lane = 0) { EXPECT_OK(cudaStreamSynchronize(streams[device][lane])); }
    bool is_idle(int device, int lane = 0) { return cudaStreamQuery(streams[device][lane]) == cudaSuccess; }

    cudaStream_t streams[2][2]{};
    char* buffers[2][4]{};
    ncclComm_t comms[2]{};
};

TEST_F(HostNccl, MatchesInOrderOfIssue) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        host_cuda::slow_streams(seed);
        ASSERT_OK(send(0, 0, 0));
        ASSERT_OK(send(0, 1, 1));  // on another stream, which may be faster
        ASSERT_OK(recv(1, 2, 1));
        ASSERT_OK(recv(1, 3, 0));
        for (int device : {0, 1})
            for (int lane : {0, 1})
                synchronize(device, lane);
        EXPECT_EQ(buffers[1][2][kBytes - 1], 0);
        EXPECT_EQ(buffers[1][3][kBytes - 1], 1);
    }
}

TEST_F(HostNccl, BlocksBothStreamsUntilBothEndsArePosted) {
    ASSERT_OK(send(0, 1));
    ASSERT_OK(cudaMemsetAsync(buffers[0][1], 77, kBytes, streams[0][0]));  // only after the data has been sent
    EXPECT_FALSE(is_idle(0));
    ASSERT_OK(recv(1, 0));
    synchronize(0);
    synchronize(1);
    EXPECT_EQ(buffers[1][0][0], 1);
    EXPECT_EQ(buffers[0][1][0], 77);
}

TEST_F(HostNccl, ProgressesInAGroupIndependently) {
    // Rank 0's group over two streams receives first; rank 1 sends that message only after it has received one.
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(recv(0, 2, 0));
    ASSERT_OK(send(0, 0, 1));
    EXPECT_TRUE(is_idle(0));
    ASSERT_OK(ncclGroupEnd());
    EXPECT_FALSE(is_idle(0));
    EXPECT_FALSE(is_idle(0, 1));
    ASSERT_OK(recv(1, 2));
    ASSERT_OK(send(1, 3));
    for (int lane : {0, 1})
        synchronize(0, lane);
    EXPECT_EQ(buffers[0][2][5], 13);
    EXPECT_EQ(buffers[1][2][5], 0);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
}

TEST_F(HostNccl, SendsToItselfInOneGroupOnly) {
    const auto self = [&](bool receives) {
        return receives ? ncclRecv(buffers[1][0], kBytes, ncclInt8, 1, comms[1], streams[1][0])
                        : ncclSend(buffers[1][3], kBytes, ncclInt8, 1, comms[1], streams[1][0]);
    };
    EXPECT_EQ(self(false), ncclInvalidUsage);
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(self(false));
    ASSERT_OK(self(true));
    ASSERT_OK(ncclGroupEnd());
    EXPECT_OK(ncclCommFinalize(comms[1]));
    EXPECT_OK(ncclCommDestroy(comms[1]));
    EXPECT_EQ(buffers[1][0][9], 13);
    EXPECT_EQ(self(false), ncclInvalidArgument);
}

TEST_F(HostNccl, AddsUpTheSameOnAllRanks) {
    constexpr int kCount = kBytes / static_cast<int>(sizeof(float));
    for (int device : {0, 1})
        for (int i = 0; i < kCount; ++i)
            reinterpret_cast<float*>(buffers[device][0])[i] = static_cast<float>((device + 1) * i);
    const auto add = [&](int device, int to) {
        return ncclAllReduce(buffers[device][0], buffers[device][to], kCount, ncclFloat32, ncclSum, comms[device],
                             streams[device][0]);
    };
    for (const int to : {1, 0}) {  // in place, too
        ASSERT_OK(ncclGroupStart());
        for (int device : {0, 1})
            ASSERT_OK(add(device, to));
        ASSERT_OK(ncclGroupEnd());
        for (int device : {0, 1}) {
            synchronize(device);
            for (int i = 0; i < kCount; ++i)
                ASSERT_EQ(reinterpret_cast<float*>(buffers[device][to])[i], static_cast<float>(3 * i));
        }
    }
    EXPECT_EQ(ncclAllReduce(buffers[0][0], buffers[1][0], kCount, ncclFloat32, ncclSum, comms[0], streams[0][0]),
              ncclInvalidArgument);  // memory of device 1
}

TEST_F(HostNccl, EndsItsWaitsWhenAborted) {
    ASSERT_OK(recv(1, 0));
    ASSERT_OK(send(0, 0));
    ASSERT_OK(recv(1, 1));  // no rank sends this message
    synchronize(0);
    EXPECT_FALSE(is_idle(1));
    ASSERT_OK(ncclCommAbort(comms[1]));
    synchronize(1);
    EXPECT_EQ(buffers[1][0][0], 0);
    EXPECT_NE(buffers[1][1][0], 0);  // the old value, or NaN if the receive has begun
    ASSERT_OK(send(0, 0));           // no rank receives this message
    ASSERT_OK(ncclCommAbort(comms[0]));
    synchronize(0);
}

TEST_F(HostNccl, DetectsOtherSizes) {
    ASSERT_OK(send(0, 0));
    ASSERT_OK(ncclRecv(buffers[1][0], kBytes / 2, ncclInt8, 0, comms[1], streams[1][0]));
    synchronize(1);
    ncclResult_t error = ncclSuccess;
    EXPECT_OK(ncclCommGetAsyncError(comms[1], &error));
    EXPECT_EQ(error, ncclInvalidUsage);
}

TEST_F(HostNccl, JoinsRanksOfOneId) {
    ncclUniqueId id;
    ASSERT_OK(ncclGetUniqueId(&id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t state = ncclSuccess;
    ASSERT_OK(cudaSetDevice(0));
    EXPECT_EQ(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config), ncclInProgress);
    EXPECT_OK(ncclCommGetAsyncError(comms[0], &state));
    EXPECT_EQ(state, ncclInProgress);
    EXPECT_EQ(send(0, 0), ncclInvalidArgument);
    std::thread other([&] {
        ASSERT_OK(cudaSetDevice(1));
        ASSERT_OK(ncclCommInitRankConfig(&comms[1], 2, id, 1, nullptr));
        ASSERT_OK(recv(1, 1));
        synchronize(1);
    });
    while (state == ncclInProgress)
        ASSERT_OK(ncclCommGetAsyncError(comms[0], &state));
    EXPECT_EQ(send(0, 3), ncclInProgress);  // it does not block
    EXPECT_OK(ncclCommGetAsyncError(comms[0], &state));
    EXPECT_EQ(state, ncclInProgress);
    EXPECT_OK(ncclCommGetAsyncError(comms[0], &state));
    EXPECT_EQ(state, ncclSuccess);
    other.join();
    synchronize(0);
    EXPECT_EQ(buffers[1][1][1], 3);
    int ranks = 0, rank = 0;
    EXPECT_OK(ncclCommCount(comms[1], &ranks));
    EXPECT_OK(ncclCommUserRank(comms[1], &rank));
    EXPECT_EQ(ranks, 2);
    EXPECT_EQ(rank, 1);
}

// Two non-blocking communicators of device 0, each with a single rank.
class HostNcclAlone : public HostNccl {
protected:
    void SetUp() override {
        HostNccl::SetUp();
        ASSERT_OK(cudaSetDevice(0));
        for (ncclComm_t& comm : alone) {
            ncclUniqueId id;
            ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
            config.blocking = 0;
            ASSERT_OK(ncclGetUniqueId(&id));
            ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInProgress);
        }
    }
    void TearDown() override {
        for (ncclComm_t comm : alone)
            EXPECT_OK(ncclCommAbort(comm));
        HostNccl::TearDown();
    }
    ncclResult_t move(int which) {
        ncclGroupStart();
        (void)ncclSend(buffers[0][which], kBytes, ncclInt8, 0, alone[which], streams[0][which]);
        (void)ncclRecv(buffers[0][which + 2], kBytes, ncclInt8, 0, alone[which], streams[0][which]);
        return ncclGroupEnd();
    }
    void wait(int which) {
        ncclResult_t state = ncclInProgress;
        while (state == ncclInProgress)
            ASSERT_OK(ncclCommGetAsyncError(alone[which], &state));
        EXPECT_OK(state);
    }

    ncclComm_t alone[2]{};
};

TEST_F(HostNcclAlone, LaunchesOneGroupAtATimeOnADevice) {
    EXPECT_EQ(move(0), ncclInProgress);
    EXPECT_EQ(move(0), ncclInvalidArgument);  // it has not been queried
    EXPECT_EQ(move(1), ncclInvalidUsage);
    EXPECT_STREQ(ncclGetLastError(nullptr), "host threads are racing to launch on one device");
    wait(0);
    EXPECT_EQ(move(1), ncclInProgress);
    wait(1);
    synchronize(0);
    synchronize(0, 1);
}

TEST_F(HostNcclAlone, IsUsedByOneThreadAtATime) {
    EXPECT_EQ(move(0), ncclInProgress);
    std::thread([&] {
        ncclResult_t state = ncclSuccess;
        EXPECT_EQ(ncclCommGetAsyncError(alone[0], &state), ncclInvalidUsage);
    }).join();
    wait(0);
    std::thread([&] { wait(0); }).join();  // between launches any thread may query it
    synchronize(0);
}

TEST_F(HostNccl, RefusesTwoRanksOnOneDevice) {
    const int devices[] = {1, 1};
    ncclComm_t pair[2]{};
    EXPECT_EQ(ncclCommInitAll(pair, 2, devices), ncclInvalidUsage);
    EXPECT_STRNE(ncclGetLastError(nullptr), "");
    EXPECT_EQ(ncclSend(buffers[1][0], 1, ncclInt8, 0, comms[1], streams[0][0]),
              ncclInvalidUsage);  // a stream of device 0
    EXPECT_EQ(ncclSend(buffers[0][0], 1, ncclInt8, 0, comms[1], streams[1][0]),
              ncclInvalidArgument);  // memory of device 0
}

// Rank 0 of two is in this process, on device 0; rank 1 is another process.
class HostNcclProcesses : public testing::Test {
protected:
    void SetUp() override {
        host_cuda::set_devices(2);
        ASSERT_OK(cudaSetDevice(0));
        ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (char*& buffer : buffers)
            ASSERT_OK(cudaMalloc(&buffer, kBytes));
        ASSERT_OK(ncclGetUniqueId(&id));
    }
    void TearDown() override {
        if (comm != nullptr) {
            EXPECT_OK(ncclCommAbort(comm));
        }
        int status = 0;
        if (other > 0) {
            EXPECT_EQ(waitpid(other, &status, 0), other);
        }
        EXPECT_EQ(status, 0);
        EXPECT_OK(cudaStreamDestroy(stream));
        for (char* buffer : buffers)
            EXPECT_OK(cudaFree(buffer));
        host_cuda::set_devices(1);
    }
    // Starts the other process, which runs the disabled test.
    void start(const char* device) {
        setenv("HOST_CUDA_PEER", id.internal, 1);
        setenv("HOST_CUDA_PEER_DEVICE", device, 1);
        const char* arguments[] = {"peer", "--gtest_also_run_disabled_tests", "--gtest_brief=1",
                                   "--gtest_filter=HostNcclPeer.DISABLED_Runs", nullptr};
        ASSERT_EQ(posix_spawn(&other, "/proc/self/exe", nullptr, nullptr, const_cast<char**>(arguments), environ), 0);
        unsetenv("HOST_CUDA_PEER");
    }
    ncclResult_t join() {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
        return state_after(ncclInProgress);
    }
    ncclResult_t state_after(ncclResult_t before) {
        ncclResult_t state = before;
        while (state == before) {
            EXPECT_OK(ncclCommGetAsyncError(comm, &state));
            std::this_thread::yield();
        }
        return state;
    }

    cudaStream_t stream = nullptr;
    char* buffers[2]{};
    ncclUniqueId id{};
    ncclComm_t comm = nullptr;
    pid_t other = 0;
};

// Returns the first message, with one added to each byte, and ends without notice when the second one has arrived.
TEST(HostNcclPeer, DISABLED_Runs) {
    const char* name = std::getenv("HOST_CUDA_PEER");
    ASSERT_NE(name, nullptr);
    ncclUniqueId id{};
    std::strncpy(id.internal, name, sizeof id.internal - 1);
    host_cuda::set_devices(2);
    const int device = std::atoi(std::getenv("HOST_CUDA_PEER_DEVICE"));
    ASSERT_OK(cudaSetDevice(device));
    ncclComm_t comm = nullptr;
    const ncclResult_t joined = ncclCommInitRankConfig(&comm, 2, id, 1, nullptr);
    if (device == 0) {  // of the other rank
        EXPECT_EQ(joined, ncclInvalidUsage);
        return;
    }
    ASSERT_OK(joined);
    cudaStream_t stream = nullptr;
    char* buffer = nullptr;
    ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ASSERT_OK(cudaMalloc(&buffer, kBytes));
    ASSERT_OK(ncclRecv(buffer, kBytes, ncclInt8, 0, comm, stream));
    ASSERT_OK(cudaStreamSynchronize(stream));
    for (int i = 0; i < kBytes; ++i)
        ++buffer[i];
    ASSERT_OK(ncclSend(buffer, kBytes, ncclInt8, 0, comm, stream));
    ASSERT_OK(ncclRecv(buffer, 1, ncclInt8, 0, comm, stream));
    ASSERT_OK(cudaStreamSynchronize(stream));
    _exit(0);
}

TEST_F(HostNcclProcesses, SendToEachOtherUntilOneIsGone) {
    start("1");
    ASSERT_EQ(join(), ncclSuccess);
    const auto exchange = [&](std::size_t sent) {
        ASSERT_OK(ncclGroupStart());
        ASSERT_OK(ncclSend(buffers[0], sent, ncclInt8, 1, comm, stream));
        ASSERT_OK(ncclRecv(buffers[1], kBytes, ncclInt8, 1, comm, stream));
        ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
    };
    ASSERT_OK(cudaMemsetAsync(buffers[0], 5, kBytes, stream));
    exchange(kBytes);
    ASSERT_EQ(state_after(ncclInProgress), ncclSuccess);
    ASSERT_OK(cudaStreamSynchronize(stream));
    for (int i = 0; i < kBytes; ++i)
        ASSERT_EQ(buffers[1][i], 6);
    exchange(1);  // there is no answer to this
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess || state == ncclInProgress)
        ASSERT_OK(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    EXPECT_EQ(ncclSend(buffers[0], 1, ncclInt8, 1, comm, stream), ncclRemoteError);
    ASSERT_OK(ncclCommAbort(std::exchange(comm, nullptr)));
    ASSERT_OK(cudaStreamSynchronize(stream));
}

TEST_F(HostNcclProcesses, DoNotShareAGpu) {
    start("0");
    EXPECT_EQ(join(), ncclInvalidUsage);
}

TEST_F(HostNcclProcesses, ThatDoNotListenAreDetected) {
    static int worlds = 0;
    std::strcpy(id.internal, ("host_cuda 1 " + std::to_string(++worlds)).c_str());  // an id that process 1 has not made
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 1, &config), ncclInProgress);
    EXPECT_EQ(state_after(ncclInProgress), ncclRemoteError);
}

}  // namespace
