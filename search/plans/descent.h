// Tries every split of a choice whose bound is below a limit, by branch and bound over the cuts.
#pragma once

#include "search/plans/cut_tables.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace pw {

// It refers to the arguments of its constructor.
class Descent {
public:
    // `least` is the table of StageBounds::step_time. Adds the number of evaluated pieces to `spent`.
    Descent(const StageBounds& bounds, const CutTable& least, Ns limit, std::int64_t& spent);

    // Simulates the split of these cuts and returns the least step time of all splits so far that fit.
    using TryCuts = std::function<Ns(const Cuts& cuts)>;
    // Tries every split whose bound is below the limit and below the least step time. Returns false if `spent` reaches
    // `end`, or the deadline passes, before none is left.
    bool run(std::int64_t end, Deadline& deadline, const TryCuts& try_cuts);

private:
    // The work of a device in the split under construction.
    struct Load {
        Ns head = -1, tail = 0;  // of its first stage (head is -1 without a first stage)
        Ns until_last_backward = 0, whole = 0;
        // There are two conditions: on all work, and on the path from the last backward to the first layers.
        Ns in_all() const { return std::max(head, Ns{0}) + whole; }
        Ns with_way_back() const { return std::max(head, Ns{0}) + until_last_backward + tail; }
    };
    // A stage: the pieces that it may be, by bound, and the work of its device without the taken piece.
    struct Level {
        std::vector<std::pair<Ns, const Piece*>> steps;
        std::size_t next = 0;
        std::optional<Load> before;
    };
    Level next_level(Ns so_far);
    Load with(Load load, int stage, const Piece& piece) const;
    bool leaves_room(int stage, const Piece& piece) const;

    const StageBounds& bounds_;
    const CutTable& least_;
    Ns limit_;
    std::int64_t& spent_;
    Cuts cuts_ = {0};  // the cuts so far
    std::vector<Load> loads_;
};

}  // namespace pw
