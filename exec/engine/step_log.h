// The log of the records of a run's steps: all of them for a trace, or only the records that the report of the
// median step needs.
#pragma once

#include "schedules/trace/trace.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace pw {

struct StepRecord {
    std::vector<std::vector<TraceEvent>> events;    // [device], on the clock of the run
    std::vector<std::vector<MemorySample>> memory;  // [device]
};

// A log that is not whole keeps a window of steps around the median of the makespans, up to a number of events, and
// counts the dropped steps on either side. Once full, the window holds exactly the steps of consecutive ranks, and
// follows the median (Munro and Paterson, "Selection and sorting with limited storage", 1980). If the times do not
// drift, a window of the square root of their number contains the median to the end.
class StepLog {
public:
    explicit StepLog(bool whole, std::size_t events = std::size_t{1} << 16) : whole_(whole), most_events_(events) {}

    void add(int step, StepRecord record);
    std::size_t kept_events() const;

    // Writes all steps of a whole log, with times from the first start. Otherwise it writes a step of the lower
    // median, without the first step if there are more steps, or the kept step that is nearest to it.
    void write(Trace& trace) const;
    bool has_median() const;  // whether the median step is still kept

private:
    // The key of a step. Steps of equal makespan have a scattered order: in their own order the median would move
    // with every step.
    struct Key {
        Ns makespan;
        std::uint32_t scattered;
        auto operator<=>(const Key&) const = default;
    };
    using Kept = std::map<Key, StepRecord>;
    std::size_t median_rank() const { return (below_ + kept_.size() + above_ - 1) / 2; }
    void shrink();
    static std::size_t size_of(const StepRecord& record);

    const bool whole_;
    const std::size_t most_events_;
    std::vector<StepRecord> all_;
    Kept kept_;
    std::size_t events_ = 0, below_ = 0, above_ = 0;  // the last two: numbers of steps dropped on either side
    Key lowest_{}, highest_{};                        // the keys of the dropped steps nearest to the window
};

}  // namespace pw
