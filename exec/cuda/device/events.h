// Events are points in a stream's work. Their clocks return when the events were passed, on the run's clock.
#pragma once

#include "exec/cuda/device/check.h"
#include "exec/engine/mailbox.h"

namespace pw::cuda {

class Event {
public:
    enum class Kind { Timed, Untimed };
    explicit Event(Kind kind);  // on the current GPU
    ~Event();
    Event(Event&& other) noexcept;
    Event& operator=(Event&& other) noexcept;

    void record(cudaStream_t stream) const;
    // For streams whose work becomes a graph: each launch records the event. No work in the graph may wait for it.
    void record_each_launch(cudaStream_t stream) const;
    void block(cudaStream_t stream) const;  // later work of the stream waits for the last record
    bool passed() const;
    cudaEvent_t get() const { return event_; }

private:
    cudaEvent_t event_ = nullptr;
};

// A clock for the events of one GPU. All streams of a GPU share a clock. The host's clock differs and drifts, so
// that both are read before and after every step: the shortest of a few round trips (host, GPU, host) counts. If
// the two readings show a drift, times between them are interpolated.
class EventClock {
public:
    EventClock();  // on the current GPU
    void read_before(cudaStream_t idle_stream);
    void read_after(cudaStream_t idle_stream);
    Ns time_of(const Event& event) const;  // on the host's clock (the event must have been passed)

private:
    struct Reading {
        Event event;
        Ns time = 0, trip = 0;  // the event was at most half a trip later or earlier
    };
    void read(Reading& reading, cudaStream_t idle_stream);

    Reading before_, after_;
    Event spare_;
    double drift_ = 0;  // of the host's clock during the step
};

Ns elapsed(cudaEvent_t from, cudaEvent_t to);

}  // namespace pw::cuda
