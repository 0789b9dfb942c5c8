// The cuts of a model, and the least costs of a pipeline stage between two cuts.
#pragma once

#include "schedules/plan/plan.h"
#include "search/deadline.h"
#include "search/downsets.h"
#include "workloads/costs/costs.h"

#include <limits>
#include <vector>

namespace pw {

// The time of a stage or plan that does not fit, or has not been found.
inline constexpr Ns kNeverFits = std::numeric_limits<Ns>::max() / 4;

// The cuts are downsets of the graph of units, numbered by size: 0 is before the first layer, the last cut after all
// layers. A unit is a layer, or with places of cuts the layers between two places. If there are too many cuts, only the
// prefixes of the forward order are used.
class StageSpace {
public:
    StageSpace(const LayerGraph& graph, std::size_t most_cuts, const CutPlaces& places = {});

    bool complete() const { return complete_; }  // every topological cut is there
    int cuts() const { return downsets_.count(); }
    int whole() const { return cuts() - 1; }
    int layers() const { return static_cast<int>(unit_of_.size()); }
    int units() const { return downsets_.vertices; }   // no stage is smaller
    int size_of(int cut) const { return size_[cut]; }  // units before it
    bool contains(int cut, int layer) const { return downsets_.contains(cut, unit_of_[layer]); }
    bool precedes(int cut, int later) const;  // some layers lie between them, and none is lost

    // These return the cuts with one unit more, or less.
    const std::vector<int>& grown(int cut) const { return grown_[cut]; }
    const std::vector<int>& shrunk(int cut) const { return shrunk_[cut]; }

    std::vector<int> layers_between(int cut, int later) const;  // ascending
    // Makes the split of `cuts`, which go from 0 to whole(), each before the next.
    StageSplit split_of(const std::vector<int>& cuts) const;

private:
    Downsets downsets_;         // of units
    std::vector<int> unit_of_;  // by layer
    bool complete_ = true;
    std::vector<int> size_;
    std::vector<std::vector<int>> grown_, shrunk_;
};

// A piece is the layers between two cuts, at a micro-batch size: every number is a lower bound over all schedules,
// device orders and splits of the other layers. Times are for a device of speed 1, without dispatch.
struct Piece {
    int from = 0, to = 0;  // cuts
    Ns forward = 0;
    Ns backward = 0;  // the pass that sends gradients on: B, or I, for inputs, if the backward is split
    Ns weight = 0;    // time of W, backward for weights, if the backward is split
    Ns rest = 0;      // the least time of B in addition to `backward`, and of W, if the plan has B, I and W
    Ns recompute = 0, update = 0, accumulate = 0;
    Ns head = 0;  // forward of the longest path of layers that the piece waits for
    Ns mid = 0;   // forward and backward of the longest path of layers after it
    Ns tail = 0;  // backward of the longest path of layers before it
    Ns before_backward() const { return head + forward + mid; }
    Ns after_forward() const { return mid + backward + tail; }
    // Whether it reads all tensors before it that no layer before it reads: then its stage waits for all earlier
    // stages.
    bool waits_for_all = true;
    bool reads = false;                 // some tensor before it
    int layers = 0, with_backward = 0;  // layers, and layers that have a backward pass (frozen_layers.h)
    Bytes weights = 0, frozen = 0, statistics = 0;
    Bytes activations = 0;  // held for a micro-batch, from F, forward, to the backward
};

class Pieces {
public:
    // Time and memory grow with the square of the cuts. Throws TimeIsUp.
    Pieces(const LayerGraph& graph, const StageSpace& space, const CostTable& costs, BackwardForm form,
           Deadline& deadline);

    int cuts() const { return static_cast<int>(pieces_.size()); }
    const std::vector<Piece>& from(int cut) const { return pieces_[cut]; }  // ascending `to`
    const Piece& between(int cut, int later) const;                         // precedes(cut, later)
    const Piece& model() const { return pieces_.front().back(); }
    // Return the least of all stages that begin at the cut or after it.
    Ns least_head(int cut) const { return least_head_[cut]; }
    Ns least_tail(int cut) const { return least_tail_[cut]; }
    // Return the bytes of the smallest tensor that goes over the cut, or 0, and the first cut with such a tensor before
    // it. A stage after the cut that reads any tensor reads from the stage before the cut, if that begins before this
    // first cut.
    Bytes least_sent(int cut) const { return least_sent_[cut]; }
    int first_sent(int cut) const { return first_sent_[cut]; }
    // Return the time of a micro-batch along the longest path of layers: forwards only, and to the loss and back.
    Ns longest_forward() const { return longest_forward_; }
    Ns longest_round() const { return longest_round_; }

private:
    std::vector<std::vector<Piece>> pieces_;
    std::vector<Ns> least_head_, least_tail_;
    std::vector<Bytes> least_sent_;
    std::vector<int> first_sent_;
    Ns longest_forward_ = 0, longest_round_ = 0;
};

}  // namespace pw
