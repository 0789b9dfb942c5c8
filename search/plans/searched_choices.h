// The choices of a search: a trial for each, and the results of the search so far.
#pragma once

#include "search/plans/trial.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <vector>

namespace pw {

struct SearchedChoice {
    std::unique_ptr<Trial> trial;
    bool left_out = false;  // there was not enough memory, or no time for its plan
    bool proven = false;    // no cuts of the space are faster than the best plan
};

class SearchedChoices {
public:
    // It refers to the problem.
    SearchedChoices(const SearchProblem& problem, std::size_t most_cuts)
        : problem_(problem),
          space_(problem.model.layers, most_cuts, places_of_cuts(problem.setup, problem.model.layers)) {}

    void add(const PlanChoice& choice);
    bool contains(const PlanChoice& choice) const;
    std::size_t size() const { return choices_.size(); }
    SearchedChoice& operator[](std::size_t index) { return choices_[index]; }
    const SearchedChoice& operator[](std::size_t index) const { return choices_[index]; }
    auto begin() const { return choices_.begin(); }
    auto end() const { return choices_.end(); }
    const StageSpace& space() const { return space_; }
    int unknown() const { return unknown_; }  // choices of sizes for which there was no memory

    // Returns the step time of the best plan that fits so far, or kNeverFits when there is none.
    Ns best() const;
    // Returns the simulated tasks, and pieces looked at, and the simulated plans.
    std::int64_t spent() const;
    std::int64_t candidates() const;
    // Returns whether no split of the choice is faster than the best plan.
    bool is_closed(const SearchedChoice& choice) const { return choice.proven && space_.complete(); }
    // Closes the choices whose bound is not below the best. Returns how many are left that can be proven.
    std::size_t prune();
    // Returns the indices of all choices by a key of their trials.
    template <class Key>
    std::vector<std::size_t> ordered_by(Key key) const {
        std::vector<std::size_t> order(choices_.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return key(*choices_[a].trial) < key(*choices_[b].trial);
        });
        return order;
    }
    // Computes the reserved memory of all plans, of the best of each schedule and number of stages first. A plan is
    // left out if there is no memory to compute its own, or if should_stop() has been true for a moment.
    void settle(int threads, const std::function<bool()>& should_stop);
    // Frees the memory of the models. Afterwards only numbers can be read.
    void forget_models() { sized_.clear(); }

private:
    std::vector<std::size_t> by_kind_first() const;

    const SearchProblem& problem_;
    StageSpace space_;
    // by micro-batch size, recomputed layers, and whether layers are offloaded (none: there was no memory for it)
    std::map<std::tuple<int, std::vector<std::string>, bool>, std::unique_ptr<SizedModel>> sized_;
    std::vector<SearchedChoice> choices_;
    int unknown_ = 0;
};

}  // namespace pw
