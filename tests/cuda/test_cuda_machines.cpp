// Machines that only the host stand-in can imitate: without a GPU, with several, with little memory, with clocks
// that drift.
#include "exec/backends.h"
#include "exec/cuda/backend.h"
#include "exec/cuda/cuda_kernels.h"
#include "exec/cuda/device/job_gpus.h"
#include "exec/cuda/transport.h"
#include "exec/engine/mailbox.h"
#include "exec/measuring/profile.h"
#include "job/build.h"
#include "job/config/config.h"
#include "job/load.h"
#include "tests/cuda/host_cuda/host_cuda.h"
#include "tests/support/cuda_precisions.h"
#include "tests/support/execution.h"
#include "tests/support/layer_laws.h"
#include "tests/support/predicted_memory.h"
#include "tests/support/refusal.h"

#include <fmt/ranges.h>
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

TEST_F(CudaMachines, ReportAMissingGpu) {
    host_cuda::set_devices(0);
    EXPECT_EQ(cuda_status(), "no GPU");
    host_cuda::set_devices(1);
    EXPECT_EQ(cuda_status(), "ready");
}

TEST_F(CudaMachines, AllowConcurrentStreams) {
    (void)cuda_status();
    EXPECT_STREQ(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
}

// Layers and streams of a device are on its GPU, whatever GPU was current for the calling thread.
TEST_F(CudaMachines, RunEachDeviceOnItsGpu) {
    Config config;
    const Layer layer = make_layer(LayerKind::Convolution, {8, 6, 6}, 8, 3, 1, 1);
    std::vector<std::vector<float>> outputs;
    const OpenDevice open = open_cuda_kernels(config, 3);
    for (int device = 0; device < 3; ++device)
        std::thread([&] {
            const auto opened = open(device);
            const auto& kernels = dynamic_cast<const CudaKernels&>(*opened);
            EXPECT_EQ(kernels.device().gpu(), device);
            LayerRig rig(kernels, layer, 2);
            rig.fill(1);
            rig.forward();
            rig.backward();
            std::thread([&] {
                outputs.push_back(rig.plain_output());
            }).join();  // on another thread, as at the end of a run
            const auto to = kernels.reserve(rig.output.size(), "test");
            cudaStream_t stream = nullptr;
            std::thread([&] { stream = kernels.device().add_stream(); }).join();
            EXPECT_EQ(cudaMemcpyAsync(to->data(), rig.output.get(), static_cast<std::size_t>(to->size()),
                                      cudaMemcpyDeviceToDevice, stream),
                      cudaSuccess);
            EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
            const Event event(Event::Kind::Timed);
            EXPECT_NO_THROW(event.record(stream));  // fails if the stream is on another GPU
        }).join();
    EXPECT_EQ(outputs[0], outputs[1]);
    EXPECT_EQ(outputs[0], outputs[2]);
}

// An access over the bus takes a microsecond, so that data that is read for every pixel or class is copied first.
TEST_F(CudaMachines, ReadSamplesAndLabelsFromTheirOwnMemory) {
    const CudaKernels kernels({}, Precision::Bf16, true);
    const auto notes = kernels.shared(2 * sizeof(Sample));
    const std::span<const Sample> samples(reinterpret_cast<const Sample*>(notes->data()), 2);
    const std::size_t before = host_cuda::launches_on_pinned();
    for (const Dataset& data : {Dataset::synthetic({3, 32, 32}, 10, 1), Dataset::synthetic_text(12, 1000, 3)}) {
        const auto out = kernels.reserve(kernels.data_bytes(data.input(), 2), "test");
        kernels.take_data(data);
        kernels.load_data(data, samples, out->data());
    }
    EXPECT_EQ(host_cuda::launches_on_pinned() - before, 0);
    for (const LayerKind kind : {LayerKind::CrossEntropy, LayerKind::MeanSquaredError}) {
        const std::size_t loaded = host_cuda::launches_on_pinned();
        LayerRig rig(kernels, make_layer(kind, {10, 6, 5}, 10), 2);
        rig.fill(1);
        rig.forward();
        rig.backward();
        EXPECT_EQ(host_cuda::launches_on_pinned() - loaded, 1);  // the one that writes the loss
    }
}

TEST_F(CudaMachines, FreeAllMemory) {
    const auto before = host_cuda::allocated(0);
    for (const bool deterministic : {true, false}) {
        const CudaKernels kernels({.groups = 2}, Precision::Bf16, deterministic);
        LayerRig rig(kernels, make_layer(LayerKind::Convolution, {8, 6, 6}, 8, 3, 1, 1), 2);
        kernels.take_data(Dataset::synthetic({3, 32, 32}, 10, 1));
        EXPECT_GT(host_cuda::allocated(0), before);
    }
    EXPECT_EQ(host_cuda::allocated(0), before);
}

TEST_F(CudaMachines, ReportTheFreeMemory) {
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

TEST_F(CudaMachines, ReportTheGrowthOfMemoryInARun) {
    constexpr std::size_t kOthers = std::size_t{10} << 20;
    const Execution execution(kMlp,
                              {"run.backend=cuda", "cluster.devices=3", "run.gpus=[0,0,2]", "pipeline.schedule=gpipe"});
    void* others = nullptr;  // memory of another program during the run
    RunOptions options;
    options.before_task = [&](int device, const Task& task) {
        if (device != 2 || task.op != Op::Forward || others != nullptr)
            return;
        const CurrentGpu current(2);
        EXPECT_EQ(cudaMalloc(&others, kOthers), cudaSuccess);
    };
    const RunResult alone = execution.run(), shared = execution.run(options);
    ASSERT_EQ(alone.gpus.size(), 2u);
    EXPECT_EQ(alone.gpus[0].gpu, 0);
    EXPECT_EQ(alone.gpus[0].devices, (std::vector<int>{0, 1}));
    EXPECT_EQ(alone.gpus[1].gpu, 2);
    EXPECT_EQ(alone.gpus[1].devices, std::vector<int>{2});
    EXPECT_GE(alone.gpus[0].grown, alone.arena[0] + alone.arena[1]);
    EXPECT_GE(alone.gpus[1].grown, alone.arena[2]);
    EXPECT_GE(alone.gpus[0].used, alone.gpus[0].grown);
    ASSERT_EQ(shared.gpus.size(), 2u);
    EXPECT_EQ(shared.gpus[0].grown, alone.gpus[0].grown);
    EXPECT_EQ(shared.gpus[1].grown, alone.gpus[1].grown + static_cast<Bytes>(kOthers));
    EXPECT_EQ(cudaFree(others), cudaSuccess);
}

// Shares of a GPU with a cuDNN that checks contexts: graphs and messages sometimes make the GPU's own context
// current.
TEST_F(CudaMachines, MayNeedTheContextOfTheShareForCudnn) {
    constexpr const char* kSharedUNet = R"(
workload: {model: unet, image_size: 16, classes: 4, base_channels: 4, levels: 2}
pipeline: {schedule: gpipe, split: even, micro_batches: 2, micro_batch_size: 1}
training: {steps: 3, seed: 3}
run: {backend: cuda, sms: [16, 16]}
)";
    const std::vector<std::string> set = {"cluster.devices=2"};
    const RunResult whole = Execution(kSharedUNet, set).oracle();
    host_cuda::set_cudnn_contexts(true);
    for (const char* way : {"run.transport=threads", "run.transport=nccl", "run.graph=step", "run.deterministic=false"})
        expect_equal(Execution(kSharedUNet, with(set, {way})).run(), whole, way);
    const CudaKernels alone({}, Precision::Fp32, true);
    LayerRig rig(alone, make_layer(LayerKind::Convolution, {8, 6, 6}, 8, 3, 1, 1), 2);
    rig.forward();
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// An error in a kernel appears when the host puts more work on the GPU, or when it waits.
TEST_F(CudaMachines, ReportAFaultWithItsTask) {
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

TEST_F(CudaMachines, CorrectClocksThatDrift) {
    const GpuShare device({}, Precision::Fp32, true);
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

// Threads of devices on one GPU: each moves messages on a route of its own, and checks all connections while it
// waits.
TEST_F(CudaMachines, UseNcclOnOneThreadAtATime) {
    constexpr int kDevices = 3;
    constexpr Bytes kBytes = 4096;
    const auto job = std::make_shared<JobGpus>();
    std::vector<std::unique_ptr<GpuShare>> own;
    Network network;
    std::vector<cudaStream_t> lanes;
    for (int number = 0; number < kDevices; ++number) {
        own.push_back(std::make_unique<GpuShare>(Seat{0, number, 1}, Precision::Fp32, true, job));
        network.devices.push_back(own.back().get());
        network.gpus.push_back({0, own.back()->gpu()});
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

// A layer that does not fit throws an error, and frees its memory.
TEST_F(CudaMachines, CannotTimeAlgorithmsWithoutMemory) {
    const CudaKernels kernels({}, Precision::Fp32, false);
    const auto before = host_cuda::allocated(0);
    host_cuda::set_memory(static_cast<std::size_t>(128 << 20));
    EXPECT_THROW((void)kernels.make(make_layer(LayerKind::Convolution, {8, 6, 6}, 8, 3, 1, 1), 2, false), Error);
    EXPECT_EQ(host_cuda::allocated(0), before);
}

Config on_gpus(std::vector<int> gpus, std::vector<int> sms = {}) {
    Config config;
    config.run.gpus = std::move(gpus);
    config.run.sms = std::move(sms);
    return config;
}

std::vector<Seat> seats_of(const Config& config, int devices) {
    JobGpus job;
    return seats_of(config, devices, job);
}

std::string print(const std::vector<Seat>& seats) {
    std::string text;
    for (const Seat& seat : seats)
        text += fmt::format("{}:{}+{} ", seat.gpu, seat.first_group, seat.groups);
    return text;
}

TEST_F(CudaMachines, SpreadDevicesOverTheirGpus) {
    EXPECT_EQ(print(seats_of({}, 2)), "0:0+0 1:0+0 ");
    EXPECT_EQ(print(seats_of({}, 3)), "0:0+0 1:0+0 2:0+0 ");
    EXPECT_EQ(print(seats_of({}, 4)), "0:0+8 0:8+8 1:0+0 2:0+0 ");
    EXPECT_EQ(print(seats_of({}, 6)), "0:0+8 0:8+8 1:0+8 1:8+8 2:0+8 2:8+8 ");
    EXPECT_EQ(print(seats_of({}, 7)), "0:0+5 0:5+5 0:10+5 1:0+8 1:8+8 2:0+8 2:8+8 ");
    host_cuda::set_devices(8);
    EXPECT_EQ(print(seats_of({}, 9)), "0:0+8 0:8+8 1:0+0 2:0+0 3:0+0 4:0+0 5:0+0 6:0+0 7:0+0 ");
}

TEST_F(CudaMachines, FillGpusWithTheSharesOfTheConfig) {
    EXPECT_EQ(print(seats_of(on_gpus({}, {32, 32}), 2)), "0:0+4 0:4+4 ");
    EXPECT_EQ(print(seats_of(on_gpus({}, {64, 64, 8, 128}), 4)), "0:0+8 0:8+8 1:0+1 2:0+16 ");
    expect_says(refusal([] {
                    (void)seats_of(on_gpus({}, {128, 128, 128, 8}), 4);
                }),
                {"add up to 136 multiprocessors, but GPU 2 can divide 128 of 132", "run.gpus"});
}

TEST_F(CudaMachines, UseTheGpusOfTheConfig) {
    EXPECT_EQ(print(seats_of(on_gpus({2, 0}), 2)), "2:0+0 0:0+0 ");
    EXPECT_EQ(print(seats_of(on_gpus({1, 2, 1}), 3)), "1:0+8 2:0+0 1:8+8 ");
    EXPECT_EQ(print(seats_of(on_gpus({1, 2, 1}, {8, 16, 120}), 3)), "1:0+1 2:0+2 1:1+15 ");
    EXPECT_EQ(print(seats_of(on_gpus({2, 1, 1}), 1)), "2:0+0 ");  // of the oracle
    expect_says(refusal([] { (void)seats_of(on_gpus({0, 1}), 3); }), {"2 GPUs for 3 devices"});
    expect_says(refusal([] { (void)seats_of(on_gpus({0, 3}), 2); }), {"there is no GPU 3", "from 0 to 2"});
    expect_says(refusal([] { (void)seats_of(on_gpus({1, 1}, {128, 8}), 2); }), {"add up to 136", "GPU 1"});
    expect_says(refusal([] { (void)seats_of(on_gpus(std::vector<int>(17, 1)), 17); }),
                {"17 devices do not fit on GPU 1"});
}

TEST_F(CudaMachines, ReportTheNodesOfTheirGpus) {
    EXPECT_EQ(cuda_addresses(on_gpus({2, 0, 0}), 3),
              (std::vector<std::string>{"FFFE:0C:00.0", "FFFE:0A:00.0", "FFFE:0A:00.0"}));
    Config config = on_gpus({2, 0, 0});
    config.run.backend = RunConfig::Backend::Cuda;
    EXPECT_EQ(numa_nodes(config, 3), (std::vector<int>{-1, -1, -1}));  // the system has no device at these addresses
    config.run.backend = RunConfig::Backend::Cpu;
    EXPECT_TRUE(numa_nodes(config, 3).empty());
}

TEST_F(CudaMachines, RunFourDevicesOnThreeGpusAsOne) {
    for (const char* gpus : {"[]", "[1, 0, 2, 0]"})
        for (const char* transport : {"threads", "nccl"}) {
            const Execution execution(
                kMlp, {"run.backend=cuda", "cluster.devices=4", "pipeline.schedule=1f1b", "pipeline.split=even",
                       std::string("run.gpus=") + gpus, std::string("run.transport=") + transport});
            expect_equal(execution.run(), execution.oracle(), std::string(gpus) + " " + transport);
        }
}

// The gradient of the data is not needed; its pass consists of two marks.
TEST_F(CudaMachines, ProfileLayersWithoutTheMarksAroundThem) {
    const TemporaryFolder folder;
    const Config config = load_config(folder.write("config.yaml", kMlp), {"run.backend=cuda"});
    host_cuda::slow_events(300);
    const Profile profile = measure_profile(config, build_model(config), {3}, {});
    host_cuda::slow_events(0);
    EXPECT_GE(profile.dispatch.median, 300'000);
    EXPECT_LT(profile.layers.front().times.at(3).backward_input.median, 150'000);
    EXPECT_GT(profile.layers.front().times.at(3).forward.median, 0);
}

}  // namespace
}  // namespace pw::cuda
