#include "search/plans/cut_tables.h"

#include "workloads/bounded.h"

#include <algorithm>

namespace pw {

namespace {

// Returns the least number of a path from a cut to the end in stages: `joined` combines the numbers of a stage and of
// the later stages.
template <class Number, class Joined>
CutTable least_paths(const StageBounds& bounds, const StageSpace& space, const Number& number, Joined joined,
                     Deadline& deadline) {
    const int stages = bounds.stages();
    CutTable table(static_cast<std::size_t>(stages) + 1,
                   std::vector<Ns>(static_cast<std::size_t>(space.cuts()), kNeverFits));
    table[stages][space.whole()] = 0;
    for (int stage = stages - 1; stage >= 0; --stage)
        for (int cut = 0; cut < space.cuts(); ++cut) {
            deadline.check();
            if (space.size_of(cut) < stage || (stage == 0 && cut != 0))
                continue;
            Ns& least = table[stage][cut];
            for (const Piece& piece : bounds.pieces().from(cut))
                if (const Ns rest = table[stage + 1][piece.to]; rest < least)
                    least = std::min(least, joined(number(stage, piece), rest));
        }
    return table;
}

}  // namespace

CutTable least_bottleneck(const StageBounds& bounds, const StageSpace& space, const NumberOfStage& number,
                          Deadline& deadline) {
    const auto larger = [](Ns a, Ns b) { return std::max(a, b); };
    return least_paths(bounds, space, number, larger, deadline);
}

Cuts cuts_of(const CutTable& table, const StageBounds& bounds, const NumberOfStage& number) {
    Cuts cuts = {0};
    if (table[0][0] >= kNeverFits)
        return {};  // no remaining path reaches the end
    for (int stage = 0; stage < bounds.stages(); ++stage) {
        int next = -1;
        Ns least = kNeverFits;
        for (const Piece& piece : bounds.pieces().from(cuts.back())) {
            if (table[stage + 1][piece.to] > table[0][0])
                continue;
            const Ns own = number(stage, piece);
            if (own <= table[0][0] && own < least) {
                least = own;
                next = piece.to;
            }
        }
        if (next < 0)
            return {};
        cuts.push_back(next);
    }
    return cuts;
}

Cuts even_cuts(const StageBounds& bounds, const StageSpace& space, Deadline& deadline) {
    const Pieces& pieces = bounds.pieces();
    const double mean = std::max(1.0, static_cast<double>(bounds.plan().passes_of(pieces.model())) / bounds.stages());
    const auto square = [&](int stage, const Piece& piece) {
        const Ns work = bounds.work(stage, piece);
        return work >= kNeverFits ? kNeverFits
                                  : bounded(static_cast<double>(work) * (static_cast<double>(work) / mean));
    };
    const auto sum = [](Ns a, Ns b) { return std::min(bounded_sum(a, b), kNeverFits); };
    const CutTable table = least_paths(bounds, space, square, sum, deadline);
    if (table[0][0] >= kNeverFits)
        return {};
    Cuts cuts = {0};
    while (std::ssize(cuts) <= bounds.stages()) {
        const int stage = static_cast<int>(cuts.size()) - 1;
        const std::vector<Piece>& next = pieces.from(cuts.back());
        const auto best = std::find_if(next.begin(), next.end(), [&](const Piece& piece) {
            const Ns rest = table[stage + 1][piece.to];
            return rest < kNeverFits && sum(square(stage, piece), rest) == table[stage][cuts.back()];
        });
        cuts.push_back(best->to);
    }
    return cuts;
}

}  // namespace pw
