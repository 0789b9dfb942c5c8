#include "search/plans/searched_choices.h"

#include "search/deadline.h"
#include "workloads/interruption.h"
#include "workloads/threads.h"

#include <chrono>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace pw {

void SearchedChoices::add(const PlanChoice& choice) {
    const auto [sized, is_new] = sized_.try_emplace({choice.micro_batch_size, choice.layers, choice.offloaded > 0});
    if (is_new)
        try {
            sized->second = std::make_unique<SizedModel>(problem_, space_, choice);
        } catch (const std::bad_alloc&) {  // nothing is known of this size
        }
    if (sized->second)
        choices_.push_back({std::make_unique<Trial>(problem_, space_, *sized->second, choice)});
    else
        ++unknown_;
}

bool SearchedChoices::contains(const PlanChoice& choice) const {
    return std::any_of(choices_.begin(), choices_.end(),
                       [&](const SearchedChoice& one) { return one.trial->found().choice == choice; });
}

Ns SearchedChoices::best() const {
    Ns best = kNeverFits;
    for (const SearchedChoice& choice : choices_)
        if (choice.trial->fits())
            best = std::min(best, choice.trial->step_time());
    return best;
}

std::int64_t SearchedChoices::spent() const {
    std::int64_t spent = 0;
    for (const SearchedChoice& choice : choices_)
        spent += choice.trial->spent();
    return spent;
}

std::int64_t SearchedChoices::candidates() const {
    std::int64_t candidates = 0;
    for (const SearchedChoice& choice : choices_)
        candidates += choice.trial->candidates();
    return candidates;
}

std::size_t SearchedChoices::prune() {
    const Ns limit = best();
    std::size_t open = 0;
    for (SearchedChoice& choice : choices_) {
        choice.proven = choice.proven || choice.trial->bound() >= limit;
        open += !choice.proven && !choice.left_out && !choice.trial->refused();
    }
    return open;
}

// Returns the best choice of each schedule and number of stages first, then the remaining choices.
std::vector<std::size_t> SearchedChoices::by_kind_first() const {
    std::vector<std::size_t> order =
        ordered_by([](const Trial& trial) { return std::pair(!trial.fits(), trial.step_time()); });
    std::set<std::pair<std::string, int>> known;
    std::stable_partition(order.begin(), order.end(), [&](std::size_t index) {
        const PlanChoice& choice = choices_[index].trial->found().choice;
        return known.emplace(choice.schedule, choice.stages).second;
    });
    return order;
}

void SearchedChoices::settle(int threads, const std::function<bool()>& should_stop) {
    constexpr std::chrono::milliseconds kMoment{400};
    const auto start = std::chrono::steady_clock::now();
    const auto is_late = [&] {
        return std::chrono::steady_clock::now() - start > kMoment && should_stop && should_stop();
    };
    const std::vector<std::size_t> order = by_kind_first();
    for_each_index(choices_.size(), threads, [&](std::size_t place) {
        SearchedChoice& choice = choices_[order[place]];
        std::optional<Interruption> interruption;
        if (place > 0)
            interruption.emplace([&] {
                if (is_late())
                    throw TimeIsUp{};
            });
        try {
            Interruption::point();
            choice.trial->settle();
        } catch (const std::bad_alloc&) {
            choice.left_out = true;
        } catch (const TimeIsUp&) {  // the choice is not among the plans
        }
        choice.trial->close();
    });
}

}  // namespace pw
