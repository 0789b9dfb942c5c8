// The second thread of a device: it sums the gradients of a stage in buckets while the device still makes others.
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
    // `open` is called on the new thread, and then, for every S, the sum of gradients, `sum` with its node.
    BucketThread(const std::string& whose, std::function<void()> open, std::function<void(int node)> sum);
    ~BucketThread();
    BucketThread(const BucketThread&) = delete;
    BucketThread& operator=(const BucketThread&) = delete;

    // These are for the device's thread, in this order. begin() lets the sum of an S begin, which may begin once;
    // fill() says that the gradients from a byte of the stage's block on are final. What the sum throws, the waits do.
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
    int node_ = -1, begun_ = -1;  // the S that is summed, -1: none; and the latest that has begun
    Bytes final_from_ = 0;
    bool last_is_full_ = false, over_ = false;
    std::exception_ptr failure_;
    Thread thread_;  // uses all of the above
};

// Observes, during its lifetime, the pass that makes the last gradients of a stage, and reports which are final.
class Filling : public PassObserver {
public:
    Filling(StageProgram& program, const LayerGraph& layers, BucketThread& thread)
        : program_(program), layers_(layers), thread_(thread) {
        program_.set_observer(this);
    }
    ~Filling() override { program_.set_observer(nullptr); }
    Filling(const Filling&) = delete;
    Filling& operator=(const Filling&) = delete;

    void before(int, Pass, const LayerArgs&) override {}
    // The pass goes from the last layer to the first, and so through the stage's block. Its end says that the first
    // bytes are final, and so the last bucket.
    void after(int layer, Pass pass, const LayerArgs&) override {
        if (pass != Pass::Weight && !(pass == Pass::Input && !has_weight_pass(layers_[layer].kind)))
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
