// Machines that only the host stand-in can be: without a GPU, with several, with little memory.
#include "exec/cuda/backend.h"
#include "exec/cuda/cuda_kernels.h"
#include "exec/cuda/layers.h"
#include "exec/cuda/transport.h"
#include "exec/host/mailbox.h"
#include "tests/execution.h"
#include "tests/host_cuda/host_cuda.h"
#include "tests/layer_rig.h"
#include "workloads/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

namespace pw::cuda {
namespace {

class CudaMachines : public testing::Test {
protected:
    void SetUp() override { host_cuda::set_devices(3); }
    void TearDown() override {
        host_cuda::set_memory(std::size_t{1} << 30);
        host_cuda::set_devices(1);
        host_cuda::set_cudnn_contexts(false);
        host_cuda::set_clock_rate(1);
        host_cuda::break_device(-1);
        (void)cudaSetDevice(0);
        (void)cudaGetLastError();
    }
};

TEST_F(CudaMachines, WithoutAGpuSaySo) {
    host_cuda::set_devices(0);
    EXPECT_EQ(cuda_status(), "no GPU");
    EXPECT_EQ(nccl_status(), "no GPU");
    host_cuda::set_devices(1);
    EXPECT_EQ(cuda_status(), "ready");
}

TEST_F(CudaMachines, AllowStreamsSideBySide) {
    (void)cuda_status();
    EXPECT_STREQ(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
}

// Layers and streams of a device are on its GPU whatever GPU the calling thread has had.
TEST_F(CudaMachines, RunEachDeviceOnItsGpu) {
    Config config;
    const Layer layer = make_layer(LayerKind::Convolution, {8, 6, 6}, 8, 3, 1, 1);
    std::vector<std::vector<float>> outputs;
    for (int device = 0; device < 3; ++device)
        std::thread([&] {
            const auto opened = open_cuda_kernels(config, device, 3);
            const auto& kernels = dynamic_cast<const CudaKernels&>(*opened);
            EXPECT_EQ(kernels.device().gpu(), device);
            LayerRig rig(kernels, layer, 2);
            rig.fill(1);
            rig.forward();
            rig.backward();
            std::thread([&] { outputs.push_back(rig.plain_output()); }).join();  // as when a run ends
            const auto to = kernels.reserve(rig.output.size(), "test");
            cudaStream_t stream = nullptr;
            std::thread([&] { stream = kernels.device().add_stream(); }).join();
            EXPECT_EQ(cudaMemcpyAsync(to->data(), rig.output.get(), static_cast<std::size_t>(to->size()),
                                      cudaMemcpyDeviceToDevice, stream),
                      cudaSuccess);
            EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
            const Event event(Event::Kind::Timed);
            EXPECT_NO_THROW(event.record(stream));  // refused when the stream is another GPU's
        }).join();
    EXPECT_EQ(outputs[0], outputs[1]);
    EXPECT_EQ(outputs[0], outputs[2]);
}

TEST_F(CudaMachines, GetAllMemoryBack) {
    const auto before = host_cuda::allocated(0);
    for (const bool deterministic : {true, false}) {
        const CudaKernels kernels({.groups = 2}, Precision::Bf16, deterministic);
        LayerRig rig(kernels, make_layer(LayerKind::Convolution, {8, 6, 6}, 8, 3, 1, 1), 2);
        kernels.take_data(Dataset::synthetic({3, 32, 32}, 10, 1));
        EXPECT_GT(host_cuda::allocated(0), before);
    }
    EXPECT_EQ(host_cuda::allocated(0), before);
}

TEST_F(CudaMachines, SayHowMuchMemoryIsFree) {
    constexpr Bytes kMiB = 1 << 20;
    const CudaKernels kernels({.gpu = 1}, Precision::Fp32, true);
    host_cuda::set_memory(static_cast<std::size_t>(64 * kMiB));
    const Bytes free = memory_of(1).free;
    try {
        (void)kernels.reserve(48 * kMiB, "device 1 (stage 1)");
        FAIL() << "nothing was thrown";
    } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()),
                  fmt::format("device 1 (stage 1): cannot reserve 48.00 MiB on GPU 1: {} of 64.00 MiB are free",
                              print_bytes(free)));
    }
}

// On shares of a GPU, where cuDNN looks at contexts: graphs and messages make the GPU's own current now and then.
TEST_F(CudaMachines, CudnnMayAskForTheContextOfItsShare) {
    constexpr const char* kUNet = R"(
workload: {model: unet, image_size: 16, classes: 4, base_channels: 4, levels: 2}
pipeline: {schedule: gpipe, split: even, micro_batches: 2, micro_batch_size: 1}
training: {steps: 3, seed: 3}
run: {backend: cuda, sms: [16, 16]}
)";
    const std::vector<std::string> set = {"cluster.devices=2"};
    const RunResult whole = Execution(kUNet, set).oracle();
    host_cuda::set_cudnn_contexts(true);
    for (const char* way : {"run.transport=threads", "run.transport=nccl", "run.graph=true", "run.deterministic=false"})
        expect_equal(Execution(kUNet, with(set, {way})).run(), whole, way);
    const CudaKernels alone({}, Precision::Fp32, true);
    LayerRig rig(alone, make_layer(LayerKind::Convolution, {8, 6, 6}, 8, 3, 1, 1), 2);
    rig.forward();
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// Of a kernel: it shows when the host puts more work there, or when it waits.
TEST_F(CudaMachines, AFaultIsToldWithTheTaskInHand) {
    const Execution execution(kMlp, {"run.backend=cuda", "cluster.devices=2", "pipeline.schedule=gpipe"});
    for (const auto& [launches, said] :
         {std::pair{true, "device 1 queues 1F2: cuda"}, {false, "device 1 waits for 1"}}) {
        RunOptions options;
        options.before_task = [launches = launches](int device, const Task& task) {
            if (device == 1 && task.op == Op::Forward && task.microbatch == 2)
                host_cuda::break_device(1, launches);
        };
        try {
            (void)execution.run(options);
            ADD_FAILURE() << "nothing was thrown";
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::RunFailed);
            EXPECT_TRUE(std::string(error.what()).starts_with(said)) << error.what();
            EXPECT_NE(std::string(error.what()).find(": an illegal memory access"), std::string::npos) << error.what();
        }
        host_cuda::break_device(-1);
    }
}

TEST_F(CudaMachines, ClocksThatDriftAreReadTwice) {
    const Device device({}, Precision::Fp32, true);
    for (const double rate : {0.5, 1.0, 1.5}) {
        host_cuda::set_clock_rate(rate);
        EventClock clock;
        clock.read_before(device.stream());
        struct Passed {
            Event event;
            Ns before, after;
        };
        std::vector<Passed> all;
        for (int k = 0; k < 3; ++k) {
            for (const Ns start = clock_now(); clock_now() < start + 10'000'000;)
                continue;
            all.push_back({Event(Event::Kind::Timed), clock_now(), 0});
            all.back().event.record(device.stream());
            EXPECT_EQ(cudaEventSynchronize(all.back().event.get()), cudaSuccess);
            all.back().after = clock_now();
        }
        clock.read_after(device.stream());
        for (const Passed& passed : all) {
            EXPECT_GE(clock.time_of(passed.event), passed.before - 2'000'000) << rate;
            EXPECT_LE(clock.time_of(passed.event), passed.after + 2'000'000) << rate;
        }
    }
}

// Device threads, on one GPU: each moves messages on a route of its own, and asks after all connections while it waits.
TEST_F(CudaMachines, ThreadsTakeTurnsWithNccl) {
    constexpr int kDevices = 3;
    constexpr Bytes kBytes = 4096;
    std::vector<std::unique_ptr<Device>> own;
    Network network;
    std::vector<cudaStream_t> lanes;
    for (int number = 0; number < kDevices; ++number) {
        own.push_back(std::make_unique<Device>(Seat{0, number, 1}, Precision::Fp32, true));
        network.devices.push_back(own.back().get());
        lanes.push_back(own.back()->add_stream());
        network.routes.push_back({number, (number + 1) % kDevices, true});
    }
    const std::unique_ptr<Transport> transport = make_nccl(network, true, 10'000'000'000);
    const DeviceMemory from = allocate(kBytes), to = allocate(kDevices * kBytes);
    std::vector<std::thread> threads;
    for (const Route& route : network.routes)
        threads.emplace_back([&, route] {
            const CurrentGpu current(0);
            const cudaStream_t out = network.devices[route.from_device]->stream();
            const cudaStream_t in = lanes[route.to_device];
            for (int k = 0; k < 30; ++k) {
                EXPECT_NO_THROW(transport->move({route.from_device, route.to_device, true, from.get(),
                                                 to.get() + route.to_device * kBytes, kBytes, out, in}));
                EXPECT_NO_THROW(transport->check_connections());
            }
        });
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// A layer that does not fit throws what it could not do, and keeps nothing.
TEST_F(CudaMachines, CannotTimeAlgorithmsWithoutMemory) {
    const CudaKernels kernels({}, Precision::Fp32, false);
    const auto before = host_cuda::allocated(0);
    host_cuda::set_memory(static_cast<std::size_t>(128 << 20));
    EXPECT_THROW((void)kernels.make(make_layer(LayerKind::Convolution, {8, 6, 6}, 8, 3, 1, 1), 2, false), Error);
    EXPECT_EQ(host_cuda::allocated(0), before);
}

}  // namespace
}  // namespace pw::cuda
