#include "exec/cuda/places.h"

#include "exec/engine/ranks_of_run.h"
#include "workloads/error.h"
#include "workloads/process.h"

#include <array>
#include <exception>
#include <map>
#include <string>
#include <utility>

namespace pw::cuda {

namespace {

Message visible_gpus() {
    int gpus = 0;
    check(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
    Message message;
    write_text(message, host_name());
    for (int gpu = 0; gpu < gpus; ++gpu)
        write_text(message, address_of(gpu));
    return message;
}

// The config with the GPUs and shares of some of its devices only.
Setup of_devices(const Setup& setup, const std::vector<int>& devices) {
    Setup part = setup;
    for (auto list : {&RunConfig::gpus, &RunConfig::sms})
        if (const std::vector<int>& all = setup.run.*list; !all.empty()) {
            (part.run.*list).clear();
            for (const int device : devices)
                (part.run.*list).push_back(all[static_cast<std::size_t>(device)]);
        }
    return part;
}

// The seats of this rank's devices.
std::vector<Seat> own_seats(const RunPlan& plan, const std::vector<Message>& gpus_of_rank, JobGpus& job) {
    const Setup& setup = plan.job.setup;
    const int own = plan.map.own();
    check_seats(setup, plan.job.plan.shape.devices);
    std::vector<int> together;  // devices of ranks that see the same GPUs
    std::size_t before = 0;
    for (int rank = 0; rank < plan.map.size(); ++rank) {
        if (rank == own)
            before = together.size();
        if (gpus_of_rank[static_cast<std::size_t>(rank)] == gpus_of_rank[static_cast<std::size_t>(own)])
            for (const int device : plan.devices_of_rank(rank))
                together.push_back(device);
    }
    int gpus = 0;
    check(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
    for (const int device : together)
        check_gpu(setup, device, gpus);
    const std::vector<Seat> seats = seats_of(of_devices(setup, together), static_cast<int>(together.size()), job);
    const auto first = seats.begin() + static_cast<std::ptrdiff_t>(before);
    return {first, first + static_cast<std::ptrdiff_t>(plan.devices_of_rank(own).size())};
}

int multiprocessors_of(const Seat& seat) {
    if (seat.groups > 0)
        return seat.groups * kGroup;
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, seat.gpu), "cudaGetDeviceProperties");
    return properties.multiProcessorCount;
}

// The message of a rank about its devices: an error, or their places.
struct SeatReport {
    Message message;
    std::exception_ptr failure;
};

SeatReport report_seats(const RunPlan& plan, const std::vector<Message>& gpus_of_rank, JobGpus& job) {
    SeatReport report;
    try {
        Message seats;
        write_text(seats, "");
        write_text(seats, host_name());
        for (const Seat& seat : own_seats(plan, gpus_of_rank, job)) {
            pw::write(seats, seat);
            pw::write(seats, multiprocessors_of(seat));
            write_text(seats, address_of(seat.gpu));
        }
        report.message = std::move(seats);
    } catch (const std::exception& error) {
        write_text(report.message, error.what());
        report.failure = std::current_exception();
    }
    return report;
}

}  // namespace

std::vector<Place> places_of(const RunPlan& plan, JobGpus& job) {
    const Setup& setup = plan.job.setup;
    std::vector<Place> places(static_cast<std::size_t>(plan.job.plan.shape.devices));
    if (!plan.on_ranks) {
        const std::vector<Seat> seats = seats_of(setup, static_cast<int>(places.size()), job);
        for (std::size_t device = 0; device < places.size(); ++device)
            places[device] = {seats[device], {0, seats[device].gpu}, 0};
        return places;
    }
    const SeatReport own = report_seats(plan, all_gather(plan.ranks, visible_gpus()), job);
    const std::vector<Message> messages = all_gather(plan.ranks, own.message);
    if (own.failure)
        std::rethrow_exception(own.failure);
    std::map<std::pair<std::string, std::string>, int> rank_on;  // by host and address
    for (int rank = 0; rank < plan.map.size(); ++rank) {
        MessageReader reader(messages[static_cast<std::size_t>(rank)]);
        if (const std::string failure = reader.read_text(); !failure.empty())
            fail_with(ExitCode::BadInput, "rank {}: {}", rank, failure);
        const std::string host = reader.read_text();
        for (const int device : plan.devices_of_rank(rank)) {
            Place& place = places[static_cast<std::size_t>(device)];
            place.seat = reader.read<Seat>();
            place.gpu = {rank, place.seat.gpu};
            place.multiprocessors = reader.read<int>();
            const std::string address = reader.read_text();
            if (const int other = rank_on.try_emplace({host, address}, rank).first->second; other != rank)
                setup.fail_at("run.gpus",
                              fmt::format("ranks {} and {} on host {} would both use the GPU at {}, which NCCL does "
                                          "not allow",
                                          other, rank, host, address),
                              "start fewer ranks there, each with several devices, or write in run.gpus which of the "
                              "GPUs that its rank sees each device takes");
        }
    }
    return places;
}

}  // namespace pw::cuda
