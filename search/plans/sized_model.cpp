#include "search/plans/sized_model.h"

#include "workloads/models/recomputed_layers.h"

#include <algorithm>
#include <numeric>

namespace pw {

namespace {

Model marked(Model model, const PlanChoice& choice, const std::vector<std::string>& offloaded) {
    set_recomputed(model.layers, choice.layers);
    if (choice.offloaded > 0) {
        std::vector<int> all(boost::num_vertices(model.layers));
        std::iota(all.begin(), all.end(), 0);
        set_offloaded(model.layers, all, offloaded);
    }
    return model;
}

}  // namespace

SizedModel::SizedModel(const SearchProblem& problem, const StageSpace& space, const PlanChoice& choice)
    : model(marked(problem.model, choice, problem.setup.pipeline.offload_layers)),
      profile(problem.profile_at(choice.micro_batch_size)),
      costs(model, profile, choice.micro_batch_size),
      space_(space) {
    const auto backward_of = [](const StageCost& cost) {
        return std::min(cost.backward, cost.backward_input + cost.backward_weight);
    };
    for (std::size_t layer = 0; layer < costs.alone().size(); ++layer) {
        const StageCost& alone = costs.alone()[layer];
        const StageCost& busy = costs.busy().empty() ? alone : costs.busy()[layer];
        forward += std::min(alone.forward, busy.forward);
        backward += std::min(backward_of(alone), backward_of(busy));
        accumulate += std::min(alone.accumulate, busy.accumulate);
        update += std::min(alone.update, busy.update);
        weights += costs.bytes()[layer].weights;
    }
}

const Pieces& SizedModel::pieces(BackwardForm form, Deadline& deadline) const {
    const std::lock_guard lock(mutex_);
    const auto found = pieces_.find(form);
    return found != pieces_.end()
               ? found->second
               : pieces_.emplace(form, Pieces(model.layers, space_, costs, form, deadline)).first->second;
}

}  // namespace pw
