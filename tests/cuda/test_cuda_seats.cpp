// The seats of devices: whole GPUs, or shares of them.
#include "exec/cuda/backend.h"
#include "exec/cuda/device/job_gpus.h"
#include "exec/cuda/layers/layers.h"
#include "job/config/config.h"
#include "tests/support/refusal.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace pw::cuda {
namespace {

class CudaSeats : public testing::Test {
protected:
    void SetUp() override {
        if (cuda_status() != "ready")
            GTEST_SKIP() << cuda_status();
        check(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
        groups = job->groups_on(0);
    }

    const std::shared_ptr<JobGpus> job = std::make_shared<JobGpus>();
    int gpus = 0, groups = 0;
};

TEST_F(CudaSeats, AreWholeGpusIfThereAreEnough) {
    const Config config;
    const std::vector<Seat> seats = seats_of(config, gpus, *job);
    for (int device = 0; device < gpus; ++device) {
        EXPECT_EQ(seats[static_cast<std::size_t>(device)].gpu, device);
        EXPECT_EQ(seats[static_cast<std::size_t>(device)].groups, 0);
    }
}

TEST_F(CudaSeats, AreEqualSharesIfThereAreTooFewGpus) {
    const int devices = 2 * gpus;
    const Config config;
    const std::vector<Seat> seats = seats_of(config, devices, *job);
    for (int device = 0; device < devices; ++device) {
        const Seat& seat = seats[static_cast<std::size_t>(device)];
        EXPECT_EQ(seat.gpu, device / 2);
        EXPECT_EQ(seat.groups, job->groups_on(seat.gpu) / 2);
        EXPECT_EQ(seat.first_group, device % 2 * seat.groups);
    }
}

TEST_F(CudaSeats, AreTheSharesOfTheConfig) {
    Config config;
    config.run.sms = {32, 8, 64};
    const std::vector<Seat> seats = seats_of(config, 3, *job);
    EXPECT_EQ(seats[0].groups, 4);
    EXPECT_EQ(seats[1].first_group, 4);
    EXPECT_EQ(seats[1].groups, 1);
    EXPECT_EQ(seats[2].first_group, 5);
    EXPECT_EQ(seats[2].groups, 8);
    std::vector<std::unique_ptr<GpuShare>> devices;
    for (const Seat& seat : seats)
        devices.push_back(std::make_unique<GpuShare>(seat, Precision::Fp32, true, job));
    EXPECT_EQ(devices[0]->multiprocessors(), 32);
    EXPECT_EQ(devices[1]->multiprocessors(), 8);
    EXPECT_EQ(devices[2]->multiprocessors(), 64);
}

TEST_F(CudaSeats, AreRefusedIfTheyDoNotFit) {
    const auto refused = [this](std::vector<int> shares, int devices) {
        Config config;
        config.run.sms = std::move(shares);
        return refusal([&] { (void)seats_of(config, devices, *job); });
    };
    expect_says(refused({64, 64}, 3), {"2 shares for 3 devices"});
    expect_says(refused({64, 12}, 2), {"12 multiprocessors cannot be a share", "multiples of 8"});
    expect_says(refused({64, 0}, 2), {"0 multiprocessors cannot be a share"});
    Config config;
    config.run.gpus = {0, 0};
    config.run.sms = {kGroup * groups, 8};
    expect_says(refusal([&] { (void)seats_of(config, 2, *job); }),
                {fmt::format("add up to {} multiprocessors, but GPU 0 ", kGroup * (groups + 1))});
    expect_says(refused({}, gpus * groups + 1), {"do not fit on GPU 0"});
}

TEST_F(CudaSeats, OfTheConfigAreUsedByKernels) {
    Config config;
    config.training.precision = Precision::Bf16;
    EXPECT_EQ(open_cuda_kernels(config, 1)(0)->data_bytes({3, 32, 32}, 4),
              4 * 4 * 32 * 32 * 2 + 64);  // and the numbers of the samples
}

}  // namespace
}  // namespace pw::cuda
