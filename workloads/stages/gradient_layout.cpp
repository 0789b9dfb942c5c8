#include "workloads/stages/gradient_layout.h"

#include "workloads/stages/transients.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace pw {

namespace {

class GradientLayouter {
public:
    GradientLayouter(const StageView& view, bool split, Bytes& gradient_kept)
        : view_(view), split_(split), gradient_kept_(gradient_kept) {}

    PassLayout make() {
        const std::size_t all = boost::num_vertices(view_.graph);
        pass_.output_gradient.resize(all);
        pass_.input_gradient.resize(all);
        pass_.before.resize(all);
        pass_.after.resize(all);
        for (const int layer : view_.layers)
            pass_.input_gradient[layer].resize(inputs_of_layer(view_.graph, layer).size());
        pass_.joined.assign(all, -1);
        share_homes();
        // Two sweeps, because packing keeps pointers to the slots, and sums copy them afterwards.
        const std::vector<SentGradient> sent = view_.sent_gradients();
        for (const int layer : view_.layers)
            place_gradient(layer);
        for (const SentGradient& gradient : sent)
            place_summands(gradient.parts, gradient.producer);
        pass_.scratch = pack_transients(std::move(transients_));
        pass_.workspace = pass_.scratch + view_.largest_scratch();
        for (const int layer : view_.layers)
            pass_.output_gradient[layer] = pass_.output_gradient[home_of_[layer]];
        for (const int layer : view_.layers)
            add_sums(view_.contributions_of(layer), pass_.output_gradient[layer], layer);
        for (const SentGradient& gradient : sent)
            add_sums(gradient.parts, gradient.home, gradient.producer);
        return std::move(pass_);
    }

private:
    // Returns the position of a layer in the backward pass.
    int backward_step(int layer) const { return static_cast<int>(view_.layers.size()) - 1 - view_.step(layer); }

    // Returns the last layer that may change the gradient of `layer`'s tensor if `add` has made it first, or -1 for
    // none.
    int changed_by(int layer, int add) const {
        const std::vector<Contribution> parts = view_.contributions_of(layer);
        int last = view_.kind(layer) == LayerKind::Add ? layer : -1;
        for (std::size_t n = 1; n < parts.size(); ++n)
            last = std::max(last, parts[n].local ? parts[n].reader : add);
        return last;
    }

    // Returns, by input of an add that joins, whether the input's gradient has the home of the add's gradient. Both
    // inputs have it if neither gradient is changed before the other has been read.
    std::array<bool, 2> shared_homes(int add) const {
        const std::vector<int> inputs = inputs_of_layer(view_.graph, add);
        if (view_.kind(add) != LayerKind::Add || !view_.bytes[add].joins || inputs[0] == inputs[1] ||
            view_.contributions_of(add).empty())
            return {false, false};
        const auto can = [&](int input) {
            if (!view_.local(input) || !has_backward(view_.graph[input]) ||
                (split_ && has_weight_pass(view_.graph[input])))
                return false;
            const Contribution first = view_.contributions_of(input).front();
            return first.local && first.reader == add;
        };
        std::array<bool, 2> shared{can(inputs[0]), can(inputs[1])};
        if (shared[0] && shared[1] &&
            (changed_by(inputs[0], add) > inputs[1] || changed_by(inputs[1], add) > inputs[0]))
            shared[inputs[0] < inputs[1] ? 1 : 0] = false;
        return shared;
    }

    void share_homes() {
        home_of_.resize(boost::num_vertices(view_.graph));
        std::iota(home_of_.begin(), home_of_.end(), 0);
        needed_ = home_of_;
        for (auto add = view_.layers.rbegin(); add != view_.layers.rend(); ++add) {
            const std::vector<int> inputs = inputs_of_layer(view_.graph, *add);
            const std::array<bool, 2> shared = shared_homes(*add);
            const int home = home_of_[*add];
            for (std::size_t k = 0; k < 2; ++k)
                if (shared[k]) {
                    home_of_[inputs[k]] = home;
                    needed_[home] = std::min(needed_[home], inputs[k]);
                }
            if (add + 1 != view_.layers.rend() && shared[0] && shared[1] && view_.joins(*(add + 1), *add))
                pass_.joined[*add] = *(add + 1);
        }
    }

    // The gradient's home: the slot of its first summand.
    void place_gradient(int layer) {
        const std::vector<Contribution> parts = view_.contributions_of(layer);
        if (parts.empty())
            return;
        if (home_of_[layer] == layer)
            place_home(layer, parts.front());
        place_summands(parts, layer);
    }

    void place_home(int layer, const Contribution& first) {
        Slot& home = pass_.output_gradient[layer];
        if (!first.local)
            home = first.inbox;
        else if (split_ && has_weight_pass(view_.graph[layer]))
            home = slot_at_end(gradient_kept_, Region::GradientKept, view_.bytes[layer].output);
        else {
            home.region = Region::Workspace;
            transients_.push_back(
                {view_.bytes[layer].output, backward_step(first.reader), backward_step(needed_[layer]), &home});
        }
    }

    // Further summands: each is written to the workspace, and lives until it is added.
    void place_summands(const std::vector<Contribution>& parts, int producer) {
        for (const Addition& addition : additions_of(parts)) {
            const Contribution& part = parts[addition.from];
            if (!part.local)
                continue;
            Slot& slot = pass_.input_gradient[part.reader][part.position];
            slot.region = Region::Workspace;
            const int last = is_joined(parts, addition, producer) ? pass_.joined[producer] : addition.after;
            transients_.push_back(
                {view_.bytes[producer].output, backward_step(part.reader), backward_step(last), &slot});
        }
    }

    // If an add runs together with a norm, their I adds the contribution of the layer above the add to its gradient,
    // provided that it comes last.
    bool is_joined(const std::vector<Contribution>& parts, const Addition& addition, int producer) const {
        const auto from = parts.begin() + static_cast<std::ptrdiff_t>(addition.from);
        return view_.local(producer) && pass_.joined[producer] >= 0 && from->local &&
               view_.step(from->reader) == view_.step(producer) + 1 && addition.to == 0 &&
               std::none_of(from + 1, parts.end(), [](const Contribution& later) { return later.local; });
    }

    // Sums the gradient of the producer's tensor at its home. Contributions of other stages wait for the local summands
    // that follow them in the order of the sum.
    void add_sums(const std::vector<Contribution>& parts, const Slot& home, int producer) {
        const auto slot_of = [&](std::size_t n) -> const Slot& {
            return parts[n].local ? pass_.input_gradient[parts[n].reader][parts[n].position] : parts[n].inbox;
        };
        if (!parts.empty() && parts.front().local)
            pass_.input_gradient[parts.front().reader][parts.front().position] = home;
        for (const Addition& addition : additions_of(parts)) {
            const Sum sum{slot_of(addition.from), slot_of(addition.to), view_.bytes[producer].output};
            if (!parts[addition.from].local) {
                const auto next = std::find_if(parts.begin() + static_cast<std::ptrdiff_t>(addition.from), parts.end(),
                                               [](const Contribution& later) { return later.local; });
                pass_.before[next == parts.end() ? producer : next->reader].push_back(sum);
            } else if (is_joined(parts, addition, producer)) {
                pass_.before[producer].push_back(sum);
            } else {
                pass_.after[addition.after].push_back(sum);
            }
        }
    }

    const StageView& view_;
    bool split_;
    Bytes& gradient_kept_;
    PassLayout pass_;
    std::vector<Transient> transients_;
    std::vector<int> home_of_;  // by layer: the layer (itself, or an add) whose gradient's home its own shares
    std::vector<int> needed_;   // the first layer, in backward order the last, for which a home is needed
};

}  // namespace

PassLayout layout_gradients(const StageView& view, bool split, Bytes& gradient_kept) {
    return GradientLayouter(view, split, gradient_kept).make();
}

}  // namespace pw
