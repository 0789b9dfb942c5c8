// The times of the passes of layers, call by call during a mini-batch.
#pragma once

#include "exec/training/stage_program.h"
#include "workloads/costs/costs.h"

#include <algorithm>
#include <vector>

namespace pw {

Measured median_of(std::vector<Ns> values);  // with the spread (both 0 if there are no values)

// Returns the time between two marks with nothing between them, on a device that is busy with earlier calls. It is in
// every time on a device with a queue. On the host a mark only reads the clock, and it is 0. `as_one`: of marks among
// calls that are launched together.
Measured cost_of_marks(const Kernels& kernels, bool as_one = false);

// Returns a time between two marks without what the marks cost, but at least a tenth of it: work takes some time.
constexpr Ns without_marks(Ns time, Ns marks) { return std::max(time - marks, (time + 9) / 10); }

// The times of layers in one setting: alone, or in parallel with computing neighbours. Passes that add to gradients
// are kept separate from passes that write them.
class PassTimes {
public:
    explicit PassTimes(std::size_t layers) : layers_(layers) {}

    // `time` is 0 only for a call that does no work. kAllLayers: an update of all layers in one call.
    void add(int layer, Pass pass, bool accumulate, Ns time);
    void add_data(Ns time) { data_.push_back(time); }  // the loading of a micro-batch
    // A call that works took this much longer, on average over a mini-batch, than without marks between calls.
    void add_excess(Ns per_call) { excess_.push_back(per_call); }

    // Returns the times of all layers. `accumulate` is a small difference of noisy times: no layer's is below 0, and
    // together they are the difference of all layers, which the noise of a layer does not lengthen.
    std::vector<LayerTimes> all_times() const;
    // If all layers are updated in one call, a layer has the `share` of its parameters.
    Measured update(int layer, double share) const;
    Measured data() const { return median_of(data_); }

private:
    struct Row {
        std::vector<Ns> forward, input, input_added, weight, weight_added, sum, update;
    };
    std::vector<Row> layers_;
    LayerTimes times(int layer) const;  // `accumulate` may be below 0
    Measured without_excess(const std::vector<Ns>& times) const;
    std::vector<Ns> whole_update_, data_, excess_;
};

// Times the calls of a device's kernels. On the host, where a call's work is done when it returns, the time between
// two calls counts for the second call, since a stage takes this time, too.
class StopWatch : public PassObserver {
public:
    StopWatch(const Kernels& kernels, const LayerGraph& layers);

    void begin_pass() { start_ = kernels_.mark(); }  // called before each forward, backward and update
    void before(int, Pass, const LayerArgs&) override {
        if (!laps_)
            start_ = kernels_.mark();
    }
    void after(int layer, Pass pass, const LayerArgs& args) override {
        const Mark end = kernels_.mark();
        calls_.push_back({layer, pass, args.accumulate, works(layer, pass, args), start_, end});
        start_ = end;
    }

    void begin() { calls_.clear(); }  // called before a mini-batch
    // Reads the marks of the mini-batch. Returns the calls that work.
    struct Calls {
        Ns time = 0;
        int number = 0;
    };
    Calls collect(PassTimes& into) const;
    // Returns the time without the cost of the marks themselves.
    Ns time_between(Mark from, Mark to) const;
    void set_cost_of_marks(Measured cost) { cost_of_marks_ = cost; }

private:
    struct Call {
        int layer;
        Pass pass;
        bool accumulate, works;
        Mark start, end;
    };
    bool works(int layer, Pass pass, const LayerArgs& args) const;

    const Kernels& kernels_;
    const LayerGraph& layers_;
    const bool laps_;
    std::vector<Call> calls_;
    Measured cost_of_marks_;
    Mark start_ = 0;
};

}  // namespace pw
