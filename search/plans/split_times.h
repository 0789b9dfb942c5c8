// Times of all splits at once that bound their steps: of stages, and of windows of devices.
#pragma once

#include "search/deadline.h"
#include "search/plans/device_windows.h"
#include "search/plans/stage_bounds.h"
#include "workloads/cluster/cluster.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace pw {

// Splits whose cuts are in these ranges: the cut before each stage, and the last cut. Cuts ascend in a split.
struct CutBox {
    std::vector<int> low, high;
};

// A split has as many times as there are windows and stages. Its step is at least as long as each of them. Each time
// is a sum over the stages of a part for each stage, which depends on the piece that the stage is.
//
// A part is the sum of a number for the cut before the piece and a number for the cut after it, except for few pieces.
// So weights of times are combined by cut, not by piece.
class SplitTimes {
public:
    // Leaves out pieces with which a step takes at least `limit`. Throws TimeIsUp.
    SplitTimes(const Plan& plan, const StageBounds& bounds, const StageSpace& space, const Cluster& cluster, Ns limit,
               Deadline& deadline);

    bool too_many() const { return too_many_; }  // pieces to evaluate: there is no answer
    std::size_t count() const { return windows_.size() + static_cast<std::size_t>(stages_); }  // of times of a split
    int stages() const { return stages_; }
    std::int64_t numbers() const;  // that least() reads for all splits
    // Whether the time counts all of a device's tasks.
    bool is_of_device(std::size_t time) const {
        return time < windows_.size() && windows_[time].to == kUpdates && windows_[time].first == Op::Forward;
    }
    CutBox all_splits() const;
    // Returns the time of all passes of a micro-batch before a cut.
    Ns passes_before(int cut) const { return passes_before_[static_cast<std::size_t>(cut)]; }

    struct Least {
        double mean;                // the weighted sum of the times of the split, infinite if the box has no split
        std::vector<int> cuts;      // of the split with the least sum
        std::vector<double> times;  // of this split
        std::int64_t looked = 0;    // numbers that were read
    };
    // Memory that least() uses again.
    struct Scratch;
    std::shared_ptr<Scratch> scratch() const;
    // Returns the least weighted sum of the times of a split in the box.
    Least least(const std::vector<double>& weights, const CutBox& box, Scratch& scratch) const;

private:
    using Part = std::vector<std::size_t>;  // the times of a split that count this part of a piece's time
    using Row = std::vector<double>;        // a number per part of a stage

    struct PieceTime {
        int to;
        float time;                // of the stage, if the stage is this piece
        bool begins_late = false;  // a stage after the piece may read nothing from it
    };
    // A piece that does not wait for all earlier stages, or whose parts are not sums. If it reads from the stage before
    // it, which is on a path of stages, then so is this piece.
    struct ExceptionalPiece {
        PieceTime piece;
        bool may_be_on_path;
        Row parts;  // if it is not
    };
    struct StageTimes {
        std::vector<std::size_t> own_windows;  // of the stage's device
        std::vector<Part> parts;
        // By cut: the pieces from it.
        std::vector<std::vector<PieceTime>> pieces;
        std::vector<std::vector<ExceptionalPiece>> exceptions;
        // By cut: whether the pieces end at consecutive cuts, and a stage after a piece reads from it.
        std::vector<char> is_plain;
        // By part and cut: the numbers of the cut before a piece and after it.
        std::vector<std::vector<double>> before, after;
    };
    // By stage: the devices that send to it, and to which it sends gradients.
    struct Ends {
        int from, to;
        bool operator==(const Ends&) const = default;
    };
    struct Step {
        double sum = 0;
        int to = -1;
        const PieceTime* piece = nullptr;
        const Row* parts = nullptr;  // of an exception that is on no path of stages
        bool next_is_on_path = true;
    };
    // By cut: the least sums of the stages after it, if pieces from the cut that may be on a path of stages are, and if
    // they are not.
    struct Rest {
        std::vector<double> on_path, off_path;
    };
    // A stage whose parts have weights, and whose pieces end in a range of cuts.
    struct WeightedStage {
        const StageTimes& times;
        const Row& weights;
        double of_time;                       // the weight of the stage's own time
        const Row& before;                    // by cut: the weighted numbers of the cut before a piece
        const Rest &rest, &after;             // after: with the weighted numbers of the cut after a piece
        const std::vector<int>& least_after;  // by cut: the cut from it on with the least sum on a path
        int low, high;
    };

    void find_messages(const Plan& plan, const Pieces& pieces, const Cluster& cluster, bool has_lengths);
    void add_stage(int stage, const Plan& plan, const PlanBound& bound);
    void add_pieces(int stage, const StageBounds& bounds, int whole, Ns limit, std::vector<char>& is_cut);
    Row parts_of(int stage, const StageBounds& bounds, Piece piece, bool on_path) const;
    Ns time_on_path(int stage, const Piece& piece, Ns own, Ns path, Ns before, const PlanBound& bound) const;
    Ns time_in_any_order(const Window& window, const StageBounds& bounds, int stage, const Piece& piece) const;
    Step best_step(const WeightedStage& stage, int cut, bool on_path, std::int64_t& looked) const;
    Step best_sum(const WeightedStage& stage, int cut, std::int64_t& looked) const;

    void read(const Scratch& scratch, const CutBox& box, Least& answer) const;

    std::size_t cuts_;
    int stages_;
    bool listed_;                     // windows are between tasks of lists
    bool last_waits_for_all_ = true;  // the last stage waits for all stages in every split
    bool too_many_ = false;
    std::vector<Window> windows_;
    std::vector<StageTimes> stage_times_;
    std::vector<Ns> passes_before_;
    // By stage and the cut before it: the least time of a message to a stage that waits for all, and of its gradients.
    std::vector<std::vector<Ns>> received_, returned_;
    Ns longest_message_ = 0;  // of both
};

}  // namespace pw
