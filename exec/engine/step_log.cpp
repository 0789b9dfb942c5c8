#include "exec/engine/step_log.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace pw {

namespace {

// The makespan as metrics define it: over all devices, without transfers.
Ns makespan_of(const StepRecord& record) {
    Ns first = std::numeric_limits<Ns>::max(), last = std::numeric_limits<Ns>::min();
    for (const std::vector<TraceEvent>& device : record.events)
        for (const TraceEvent& event : device)
            if (!moves_data(event.task.op)) {
                first = std::min(first, event.start);
                last = std::max(last, event.end);
            }
    return last > first ? last - first : 0;
}

void append(const std::vector<const StepRecord*>& records, std::size_t devices, Trace& trace) {
    Ns origin = std::numeric_limits<Ns>::max();
    for (const StepRecord* record : records)
        for (const std::vector<TraceEvent>& device : record->events)
            for (const TraceEvent& event : device)
                origin = std::min(origin, event.start);
    for (std::size_t device = 0; device < devices; ++device)
        for (const StepRecord* record : records) {
            for (TraceEvent event : record->events[device]) {
                event.start -= origin;
                event.end -= origin;
                trace.events.push_back(event);
            }
            for (MemorySample sample : record->memory[device]) {
                sample.time = std::max<Ns>(0, sample.time - origin);
                trace.memory.push_back(sample);
            }
        }
}

}  // namespace

std::size_t StepLog::size_of(const StepRecord& record) {
    std::size_t size = 0;
    for (const std::vector<TraceEvent>& device : record.events)
        size += device.size();
    return size;
}

std::size_t StepLog::kept_events() const {
    std::size_t size = events_;
    for (const StepRecord& record : all_)
        size += size_of(record);
    return size;
}

void StepLog::add(int step, StepRecord record) {
    if (whole_) {
        all_.push_back(std::move(record));
        return;
    }
    if (step == 1) {  // the first step was the warm-up
        kept_.clear();
        events_ = 0;
    }
    const Key key{makespan_of(record), static_cast<std::uint32_t>(step) * 2654435761U};  // an odd factor: a bijection
    if (below_ > 0 && key < lowest_) {
        ++below_;
    } else if (above_ > 0 && key > highest_) {
        ++above_;
    } else {
        events_ += size_of(record);
        kept_.emplace(key, std::move(record));
        shrink();
    }
}

// Drops the outermost step that is farther from the median, in ranks.
void StepLog::shrink() {
    while (events_ > most_events_ && kept_.size() > 1) {
        const std::size_t median = median_rank(), middle = below_ + kept_.size() / 2;
        const auto dropped = median >= middle ? kept_.begin() : std::prev(kept_.end());
        if (median >= middle) {
            lowest_ = dropped->first;
            ++below_;
        } else {
            highest_ = dropped->first;
            ++above_;
        }
        events_ -= size_of(dropped->second);
        kept_.erase(dropped);
    }
}

bool StepLog::has_median() const {
    return whole_ || (median_rank() >= below_ && median_rank() < below_ + kept_.size());
}

void StepLog::write(Trace& trace) const {
    std::vector<const StepRecord*> records;
    for (const StepRecord& record : all_)
        records.push_back(&record);
    if (!kept_.empty()) {
        const std::size_t rank = std::clamp(median_rank(), below_, below_ + kept_.size() - 1);
        records.push_back(&std::next(kept_.begin(), static_cast<std::ptrdiff_t>(rank - below_))->second);
    }
    append(records, static_cast<std::size_t>(trace.devices), trace);
}

}  // namespace pw
