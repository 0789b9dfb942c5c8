#include "exec/cuda/events.h"

#include "exec/host/mailbox.h"

#include <cmath>
#include <limits>
#include <utility>

namespace pw::cuda {

Event::Event(Kind kind) {
    check(cudaEventCreateWithFlags(&event_, kind == Kind::Timed ? cudaEventDefault : cudaEventDisableTiming),
          "cudaEventCreateWithFlags");
}

Event::~Event() {
    if (event_ != nullptr)
        (void)cudaEventDestroy(event_);
}

Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
}

void Event::record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }

void Event::record_each_launch(cudaStream_t stream) const {
    check(cudaEventRecordWithFlags(event_, stream, cudaEventRecordExternal), "cudaEventRecordWithFlags");
}

void Event::block(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent"); }

bool Event::passed() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady)
        return false;
    check(status, "cudaEventQuery");
    return true;
}

EventClock::EventClock() : base_(Event::Kind::Timed), spare_(Event::Kind::Timed) {}

void EventClock::calibrate(cudaStream_t idle_stream) {
    constexpr int kTrips = 16;
    Ns tightest = std::numeric_limits<Ns>::max();
    for (int trip = 0; trip < kTrips; ++trip) {
        const Ns before = clock_now();
        spare_.record(idle_stream);
        check(cudaEventSynchronize(spare_.get()), "cudaEventSynchronize");
        const Ns after = clock_now();
        if (after - before >= tightest)
            continue;
        tightest = after - before;
        at_base_ = before + tightest / 2;
        std::swap(base_, spare_);
    }
}

Ns EventClock::time_of(const Event& event) const { return at_base_ + elapsed(base_.get(), event.get()); }

// A float of milliseconds: exact to the nanosecond up to 16 ms, to a microsecond up to 16 s. Steps are shorter.
Ns elapsed(cudaEvent_t from, cudaEvent_t to) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, from, to), "cudaEventElapsedTime");
    return std::llround(static_cast<double>(milliseconds) * 1e6);
}

}  // namespace pw::cuda
