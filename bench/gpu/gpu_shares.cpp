// Do devices that share a GPU run on multiprocessors of their own, and at the same time? Every block notes
// where and when it ran.
//
//     gpu_shares
#include "bench/gpu/measuring.h"
#include "bench/gpu/spin.h"
#include "exec/cuda/device/device.h"
#include "exec/cuda/device/job_gpus.h"
#include "job/config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <set>

namespace pw {
namespace {

using namespace cuda;

constexpr Ns kSpin = 2'000'000, kTimeout = 10'000'000'000;
constexpr int kBlocksPerMultiprocessor = 4;  // twice what fits: blocks follow one another
constexpr double kEnough = 80;               // percent

using Number = std::uint64_t;

struct Stay {
    std::set<unsigned> multiprocessors;
    Number start = std::numeric_limits<Number>::max(), end = 0;
};

struct Job {
    GpuShare* device;
    unsigned blocks;
    DeviceMemory visits;
};

void start(const Job& job, Ns nanoseconds) {
    spin(job.device->stream(), job.blocks, static_cast<Number>(nanoseconds),
         reinterpret_cast<Visit*>(job.visits.get()));
}

Stay stay_of(const Job& job) {
    std::vector<Visit> visits(job.blocks);
    check(cudaMemcpyAsync(visits.data(), job.visits.get(), visits.size() * sizeof(Visit), cudaMemcpyDeviceToHost,
                          job.device->stream()),
          "cudaMemcpyAsync");
    wait_for(job.device->stream(), kTimeout);
    Stay stay;
    for (const Visit& visit : visits) {
        stay.multiprocessors.insert(visit.multiprocessor);
        stay.start = std::min(stay.start, visit.start);
        stay.end = std::max(stay.end, visit.end);
    }
    return stay;
}

// "0-7, 16-23"
std::string ranges(const std::set<unsigned>& numbers) {
    std::string text;
    for (auto at = numbers.begin(); at != numbers.end();) {
        const unsigned first = *at;
        unsigned last = first;
        while (++at != numbers.end() && *at == last + 1)
            ++last;
        text += (text.empty() ? "" : ", ") + std::to_string(first);
        text += last > first ? "-" + std::to_string(last) : "";
    }
    return text;
}

std::size_t in_common(const std::vector<Stay>& stays) {
    std::set<unsigned> seen, twice;
    for (const Stay& stay : stays)
        for (const unsigned number : stay.multiprocessors)
            if (!seen.insert(number).second)
                twice.insert(number);
    return twice.size();
}

// Time in which all ran, in percent of the longest stay.
double overlap(const std::vector<Stay>& stays) {
    Number last_start = 0, first_end = std::numeric_limits<Number>::max(), longest = 1;
    for (const Stay& stay : stays) {
        last_start = std::max(last_start, stay.start);
        first_end = std::min(first_end, stay.end);
        longest = std::max(longest, stay.end - stay.start);
    }
    return first_end <= last_start ? 0
                                   : 100 * static_cast<double>(first_end - last_start) / static_cast<double>(longest);
}

struct Finding {
    bool disjoint = false, within_shares = false;
    double overlap = 0;
};

Finding measure(const std::string& title, const std::vector<std::unique_ptr<GpuShare>>& devices, unsigned blocks) {
    std::vector<Job> jobs;
    for (const auto& device : devices)
        jobs.push_back({device.get(), blocks, allocate(static_cast<Bytes>(blocks * sizeof(Visit)))});
    for (const Job& job : jobs) {  // loads the kernel
        start(job, 1);
        wait_for(job.device->stream(), kTimeout);
    }
    for (const Job& job : jobs)
        start(job, kSpin);
    Finding found{.within_shares = true};
    std::vector<Stay> stays;
    for (const Job& job : jobs)
        stays.push_back(stay_of(job));
    Number origin = stays.front().start;
    for (const Stay& stay : stays)
        origin = std::min(origin, stay.start);

    fmt::print("\n{}: {} blocks on each\n{:>6} {:>6} {:>6} {:>10} {:>10}  multiprocessors\n", title, blocks, "device",
               "share", "used", "from us", "to us");
    for (std::size_t i = 0; i < stays.size(); ++i) {
        const Stay& stay = stays[i];
        fmt::print("{:6} {:6} {:6} {:10.1f} {:10.1f}  {}\n", i, devices[i]->multiprocessors(),
                   stay.multiprocessors.size(), static_cast<double>(stay.start - origin) * 1e-3,
                   static_cast<double>(stay.end - origin) * 1e-3, ranges(stay.multiprocessors));
        found.within_shares =
            found.within_shares && static_cast<int>(stay.multiprocessors.size()) <= devices[i]->multiprocessors();
    }
    const std::size_t common = in_common(stays);
    found.disjoint = common == 0;
    found.overlap = overlap(stays);
    fmt::print("multiprocessors used by several: {}; all run at the same time for {:.1f} % of the longest\n", common,
               found.overlap);
    return found;
}

Finding measure_shares(int devices) {
    const Config config;
    const auto job = std::make_shared<JobGpus>();
    const std::vector<Seat> seats = seats_of(config, devices, *job);
    std::vector<std::unique_ptr<GpuShare>> shares, whole;
    for (const Seat& seat : seats) {
        shares.push_back(std::make_unique<GpuShare>(seat, Precision::Fp32, true, job));
        whole.push_back(std::make_unique<GpuShare>(Seat{}, Precision::Fp32, true));
    }
    const auto blocks = static_cast<unsigned>(kBlocksPerMultiprocessor * shares.front()->multiprocessors());
    const Finding found = measure(fmt::format("{} equal shares", devices), shares, blocks);
    (void)measure(fmt::format("{} plain streams, for contrast", devices), whole, blocks);
    return found;
}

int measure_all(Arguments& arguments) {
    arguments.done();
    fmt::print("{}, blocks of {} that stay for {}\n", GpuShare({}, Precision::Fp32, true).name(), kSpinThreads,
               print_time(kSpin));
    bool all = true;
    for (const int devices : {2, 4}) {
        const Finding found = measure_shares(devices);
        all = all && found.disjoint && found.within_shares && found.overlap >= kEnough;
    }
    fmt::print("\n");
    return shown(all, fmt::format("shares use multiprocessors of their own, no more than they have, and run at the "
                                  "same time for at least {:.0f} % of the longest",
                                  kEnough));
}

}  // namespace
}  // namespace pw

int main(int count, char** values) { return pw::measured(count, values, 90, pw::measure_all); }
