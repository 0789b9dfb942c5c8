#include "search/plans/searched_choices.h"

#include "workloads/threads.h"

#include <new>

namespace pw {

void SearchedChoices::add(const PlanChoice& choice) {
    const auto [sized, is_new] = sized_.try_emplace({choice.micro_batch_size, choice.layers});
    if (is_new)
        try {
            sized->second = std::make_unique<SizedModel>(problem_, space_, choice.micro_batch_size, choice.layers);
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

void SearchedChoices::settle(int threads) {
    for_each_index(choices_.size(), threads, [&](std::size_t index) {
        SearchedChoice& choice = choices_[index];
        try {
            choice.trial->settle();
        } catch (const std::bad_alloc&) {
            choice.left_out = true;
        }
        choice.trial->close();
    });
}

}  // namespace pw
