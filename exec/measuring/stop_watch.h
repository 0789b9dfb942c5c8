// What the passes of layers take, timed call by call in their place.
#pragma once

#include "exec/training/stage_program.h"
#include "workloads/costs/costs.h"

#include <vector>

namespace pw {

Measured median_of(std::vector<Ns> values);  // with the spread; both 0 when there are no values

// Times of layers that were run in one way: alone, or beside computing neighbours. Gradients that are added to others
// are kept apart from those that are written.
class PassTimes {
public:
    explicit PassTimes(std::size_t layers) : layers_(layers) {}

    void add(int layer, Pass pass, bool accumulate, Ns time);  // of kAllLayers: an update of all layers in one call
    void add_data(Ns time) { data_.push_back(time); }          // loading a micro-batch

    LayerTimes times(int layer) const;
    // Where all layers are updated in one call, a layer has the `share` of its parameters.
    Measured update(int layer, double share) const;
    Measured data() const { return median_of(data_); }

private:
    struct Row {
        std::vector<Ns> forward, input, input_added, weight, weight_added, sum, update;
    };
    std::vector<Row> layers_;
    std::vector<Ns> whole_update_, data_;
};

// Times the calls of a device's kernels. On the host, where a call has done its work when it returns, what the program
// does between two calls belongs to the second: a stage takes that time, too.
class StopWatch : public PassObserver {
public:
    explicit StopWatch(const Kernels& kernels);

    void begin_pass() { start_ = kernels_.mark(); }  // before all calls of a forward, a backward or an update
    void before(int, Pass, const LayerArgs&) override {
        if (!laps_)
            start_ = kernels_.mark();
    }
    void after(int layer, Pass pass, const LayerArgs& args) override {
        const Mark end = kernels_.mark();
        calls_.push_back({layer, pass, args.accumulate, start_, end});
        start_ = end;
    }

    // Reads what the marks say, and forgets them; call it after a mini-batch. `into` may be null.
    void collect(PassTimes* into);
    // Returns the time without what the marks take themselves.
    Ns time_between(Mark from, Mark to) const;
    void set_cost_of_marks(Measured cost) { cost_of_marks_ = cost; }
    Measured cost_of_marks() const { return cost_of_marks_; }

private:
    struct Call {
        int layer;
        Pass pass;
        bool accumulate;
        Mark start, end;
    };

    const Kernels& kernels_;
    const bool laps_;
    std::vector<Call> calls_;
    Measured cost_of_marks_;
    Mark start_ = 0;
};

}  // namespace pw
