#include "exec/cuda/device/events.h"

#include "exec/engine/mailbox.h"

#include <cmath>
#include <cstdlib>
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

EventClock::EventClock()
    : before_{Event(Event::Kind::Timed)}, after_{Event(Event::Kind::Timed)}, spare_(Event::Kind::Timed) {}

void EventClock::read(Reading& reading, cudaStream_t idle_stream) {
    constexpr int kTrips = 16;
    reading.trip = std::numeric_limits<Ns>::max();
    for (int trip = 0; trip < kTrips; ++trip) {
        const Ns before = clock_now();
        spare_.record(idle_stream);
        check(cudaEventSynchronize(spare_.get()), "cudaEventSynchronize");
        const Ns after = clock_now();
        if (after - before >= reading.trip)
            continue;
        reading.trip = after - before;
        reading.time = before + reading.trip / 2;
        std::swap(reading.event, spare_);
    }
}

void EventClock::read_before(cudaStream_t idle_stream) {
    drift_ = 0;
    read(before_, idle_stream);
}

// A difference below the uncertainty of the readings is not counted as drift: it would stretch the tasks of short
// steps.
void EventClock::read_after(cudaStream_t idle_stream) {
    read(after_, idle_stream);
    const Ns by_gpu = elapsed(before_.event.get(), after_.event.get());
    const Ns gained = after_.time - before_.time - by_gpu;
    if (std::abs(gained) > (before_.trip + after_.trip) / 2)
        drift_ = static_cast<double>(gained) / static_cast<double>(by_gpu);
}

Ns EventClock::time_of(const Event& event) const {
    const Ns since = elapsed(before_.event.get(), event.get());
    return before_.time + since + std::llround(drift_ * static_cast<double>(since));
}

// CUDA returns a float in milliseconds: exact to a nanosecond up to 16 ms, to a microsecond up to 16 s. Steps are
// shorter.
Ns elapsed(cudaEvent_t from, cudaEvent_t to) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, from, to), "cudaEventElapsedTime");
    return std::llround(static_cast<double>(milliseconds) * 1e6);
}

}  // namespace pw::cuda
