// The second thread of a device: it sums the gradients of a stage in buckets while the device still computes other
// gradients.
#pragma once

#include "exec/system/threads.h"
#include "exec/training/stage_program.h"
#include "workloads/models/layer_graph.h"
#include "workloads/models/layer_kind.h"
#include "workloads/units.h"

#include <exception>
#include <functional>
#include <string>

namespace pw {

class BucketThread {
public:
    // Calls `open` on the new thread, and then `sum` with the node of every S, the sum of gradients.
    BucketThread(const std::string& whose, std::function<void()> open, std::function<void(int node)> sum);
    ~BucketThread();
    BucketThread(const BucketThread&) = delete;
    BucketThread& operator=(const BucketThread&) = delete;

    // These are for the device's thread, in this order. begin() starts the sum of an S; a second call for the same
    // S has no effect. fill() marks the gradients from a byte of the stage's block to its end as final. The waits
    // throw the exceptions of `sum`.
    void begin(int node);
    void fill(Bytes from);
    void wait_for_last();  // until the last bucket is full on all devices
    void wait_until_done();

    // These are for the sum.
    void wait_until_full(Bytes from);
    void last_is_full();

private:
    void work(const std::function<void()>& open, const std::function<void(int node)>& sum);

    Mutex mutex_;
    Condition changed_;
    int node_ = -1, begun_ = -1;  // the current S, or -1, and the latest that has begun
    Bytes final_from_ = 0;
    bool last_is_full_ = false, over_ = false;
    std::exception_ptr failure_;
    Thread thread_;  // uses all of the above
};

// Observes, during its lifetime, the pass that computes the last gradients of a stage, and marks final ones for the
// bucket thread.
class FillObserver : public PassObserver {
public:
    FillObserver(StageProgram& program, const LayerGraph& layers, BucketThread& thread)
        : program_(program), layers_(layers), thread_(thread) {
        program_.set_observer(this);
    }
    ~FillObserver() override { program_.set_observer(nullptr); }
    FillObserver(const FillObserver&) = delete;
    FillObserver& operator=(const FillObserver&) = delete;

    void before(int, Pass, const LayerArgs&) override {}
    // The pass goes from the last layer to the first, and so through the stage's block from its end. When the pass
    // ends, the first bytes are final, and so the last bucket.
    void after(int layer, Pass pass, const LayerArgs&) override {
        const Layer& own = layers_[layer];
        if (own.frozen || (pass != Pass::Weight && !(pass == Pass::Input && !has_weight_pass(own))))
            return;
        if (const Bytes from = program_.layout().weight_offset[layer]; from > 0)
            thread_.fill(from);
    }

private:
    StageProgram& program_;
    const LayerGraph& layers_;
    BucketThread& thread_;
};

}  // namespace pw
