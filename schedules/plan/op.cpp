#include "schedules/plan/op.h"

#include <algorithm>

namespace pw {

namespace {

constexpr bool is_in_order() {
    for (std::size_t row = 0; row < std::size(kOpFacts); ++row)
        if (kOpFacts[row].op != static_cast<Op>(row))
            return false;
    return true;
}
static_assert(is_in_order(), "the rows of facts are in the order of Op");
static_assert(std::ranges::count(kComputing, OpRole::Compute, &OpFacts::role) == std::ssize(kComputing),
              "operations that compute come first");

constexpr bool has_names(const OpFacts& facts) {
    return !facts.letters.empty() && !facts.words.empty() &&
           std::ranges::count(kOpFacts, facts.letters, &OpFacts::letters) == 1;
}
static_assert(std::ranges::all_of(kOpFacts, has_names), "every operation has words, and letters of its own");

constexpr bool has_costs(const OpFacts& facts) {
    return (facts.cost != nullptr) != moves_data(facts.op) && (facts.workspace != nullptr) == is_compute(facts.op);
}
static_assert(std::ranges::all_of(kOpFacts, has_costs),
              "operations that compute have a time and a workspace, U and S a time");

constexpr bool has_length(const OpFacts& facts) {
    const bool is_whole = std::ranges::count(kOpFacts, std::optional(facts.op), &OpFacts::whole) > 0;
    return (facts.length != nullptr) == (is_compute(facts.op) && !is_whole) && (!is_whole || is_compute(facts.op));
}
static_assert(std::ranges::all_of(kOpFacts, has_length),
              "what computes has a length of its own, or those of its parts");

static_assert(std::ranges::count(kOpFacts, Saved::Made, &OpFacts::saved) == 1, "one operation saves activations first");
static_assert(std::ranges::all_of(kOpFacts,
                                  [](const OpFacts& facts) {
                                      return facts.saved == Saved::None || is_compute(facts.op);
                                  }),
              "only what computes saves activations");

static_assert(std::ranges::count(kOpFacts, OpRole::Send, &OpFacts::role) == 2,
              "a third kind of transfer needs an answer wherever carries_gradients() is asked");

constexpr bool has_ends(const OpFacts& facts) {
    if (!is_transfer(facts.op))
        return facts.peers == PeerStages::None && !facts.other_end;
    if (facts.peers == PeerStages::None || !facts.other_end)
        return false;
    const OpFacts& other = facts_of(*facts.other_end);
    return is_send(facts.op) == is_recv(other.op) && other.other_end == facts.op &&
           other.gradients == facts.gradients && other.peers != facts.peers;
}
static_assert(std::ranges::all_of(kOpFacts, has_ends), "SEND and RECV are each other's other end");

constexpr bool is_well_formed(const OpInput& input) {
    return (input.from == OpInput::From::Peers) == input.received_by.has_value() &&
           (!input.received_by || is_recv(*input.received_by));
}
constexpr bool has_inputs(const OpFacts& facts) {
    const bool begins = copies_states(facts.op) && leaves_device(facts.op);
    return facts.inputs.empty() == begins && std::ranges::all_of(facts.inputs, is_well_formed);
}
static_assert(std::ranges::all_of(kOpFacts, has_inputs), "every operation but STORE, which begins a step, has inputs");

}  // namespace

std::optional<Op> op_from(std::string_view letters) {
    const auto found = std::ranges::find(kOpFacts, letters, &OpFacts::letters);
    return found == std::end(kOpFacts) ? std::nullopt : std::optional(found->op);
}

}  // namespace pw
