#include "exec/system/disturbance.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <fstream>

namespace pw {

namespace {

constexpr double kLittleStolen = 0.05;
constexpr double kUsualSpread = 0.5;  // of the medians

Ns read_clock(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return Ns{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Ticks {
    double stolen = 0, all = 0;
};

// cpu  user nice system idle iowait irq softirq steal guest guest_nice. The last two are included in the first two.
Ticks read_ticks() {
    std::ifstream file("/proc/stat");
    std::string name;
    Ticks ticks;
    if (!(file >> name) || name != "cpu")
        return ticks;
    double value = 0;
    for (int column = 0; column < 8 && file >> value; ++column) {
        ticks.all += value;
        ticks.stolen = column == 7 ? value : 0;
    }
    return ticks;
}

std::string percent(double part) { return fmt::format("{:.0f} %", part * 100); }

}  // namespace

void CoreClock::start() {
    passed_before_ = read_clock(CLOCK_MONOTONIC);
    had_before_ = read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void CoreClock::stop() {
    had_ += read_clock(CLOCK_THREAD_CPUTIME_ID) - had_before_;
    passed_ += read_clock(CLOCK_MONOTONIC) - passed_before_;
}

double CoreClock::share() const {
    return passed_ > 0 ? std::min(1.0, static_cast<double>(had_) / static_cast<double>(passed_)) : 1;
}

StolenTime::StolenTime() {
    const Ticks now = read_ticks();
    stolen_ = now.stolen;
    all_ = now.all;
}

double StolenTime::share() const {
    const Ticks now = read_ticks();
    return now.all > all_ ? std::max(0.0, now.stolen - stolen_) / (now.all - all_) : 0;
}

std::vector<std::string> warnings_of(const Disturbance& disturbance) {
    std::vector<std::string> warnings;
    const std::vector<double>& shares = disturbance.cpu_share;
    const double least = shares.empty() ? 1 : *std::min_element(shares.begin(), shares.end());
    if (disturbance.shared_cores)
        warnings.push_back(fmt::format(
            "the devices need more cores than there are: one of them got {} of a core while it computed; times "
            "are not those of devices with cores of their own",
            percent(least)));
    else if (least < kQuietShare)
        warnings.push_back(fmt::format(
            "the devices got {} of their cores: other programs are running; times are not comparable", percent(least)));
    if (disturbance.stolen > kLittleStolen)
        warnings.push_back(fmt::format("the host of this virtual machine took {} of its time; times are not comparable",
                                       percent(disturbance.stolen)));
    return warnings;
}

std::vector<std::string> warnings_of_spread(Ns median, Ns spread) {
    const double part = median > 0 ? static_cast<double>(spread) / static_cast<double>(median) : 0;
    if (part <= kUsualSpread)
        return {};
    return {
        fmt::format("the spread of the measured times is {} of their medians: the machine was disturbed, or its speed "
                    "changes; predictions from them may be as far off",
                    percent(part))};
}

}  // namespace pw
