#include "search/plans/families.h"

#include "search/choice_ways.h"
#include "workloads/threads.h"

#include <algorithm>
#include <new>
#include <numeric>

namespace pw {

namespace {

// Choices are akin when they have the same schedule, sizes and stages.
bool are_akin(const PlanChoice& a, const PlanChoice& b) {
    return a.schedule == b.schedule && a.micro_batch_size == b.micro_batch_size && a.stages == b.stages &&
           are_same_ways(a, b);
}

// Returns a member that is open, if there is one.
const Trial* member_of(const Family& family, const SearchedChoices& choices) {
    const Trial* member = nullptr;
    for (const SearchedChoice& choice : choices)
        if (const Trial& trial = *choice.trial; are_akin(trial.found().choice, family.partial.like) &&
                                                !trial.refused() &&
                                                (member == nullptr || (trial.is_open() && !member->is_open())))
            member = &trial;
    return member;
}

// Returns false if the choice exists already.
bool add_shared(PlanChoice choice, const std::vector<int>& replicas, SearchedChoices& choices) {
    choice.replicas = replicas;
    choice.devices.resize(static_cast<std::size_t>(std::accumulate(replicas.begin(), replicas.end(), 0)));
    if (choices.contains(choice))
        return false;
    choices.add(choice);
    return true;
}

// No bound depends on the network: if only the network distinguishes devices, the members' bounds hold for all orders.
Ns bound_of_other_orders(const Family& family, const SearchedChoices& choices) {
    if (!family.partial.only_network)
        return 0;
    Ns least = kNeverFits;
    for (const SearchedChoice& choice : choices)
        if (are_akin(choice.trial->found().choice, family.partial.like))
            least = std::min(least, choice.trial->bound());
    return least;
}

}  // namespace

std::vector<std::size_t> add_balanced(std::vector<Family>& families, SearchedChoices& choices,
                                      const std::vector<DeviceConfig>& devices, int threads, const Deadline& deadline) {
    double speeds = 0;
    for (const DeviceConfig& device : devices)
        speeds += device.speed;
    std::vector<std::vector<int>> shares(families.size());
    const Ns limit = choices.best();
    for_each_index(families.size(), threads, [&](std::size_t i) {
        Deadline own_deadline = deadline;
        Family& family = families[i];
        const Trial* member = member_of(family, choices);
        if (member == nullptr)
            return;
        family.bound = member->bound_of_any_devices(speeds);
        if (!member->is_open() || !family.partial.shares || family.bound >= limit)
            return;
        try {
            shares[i] = member->shares_by_work(own_deadline);
            family.bound = std::max(family.bound, member->bound_of_any_shares(own_deadline));
        } catch (const TimeIsUp&) {
        } catch (const std::bad_alloc&) {
        }
    });
    std::vector<std::size_t> added;
    for (std::size_t i = 0; i < families.size(); ++i)
        if (!shares[i].empty() && add_shared(families[i].partial.like, shares[i], choices))
            added.push_back(choices.size() - 1);
    return added;
}

Ns bound_of(const Family& family, const SearchedChoices& choices) {
    return std::max(family.bound, bound_of_other_orders(family, choices));
}

}  // namespace pw
