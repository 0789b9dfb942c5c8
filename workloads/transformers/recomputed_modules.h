// What the backward of a transformer's block computes again, and which blocks do so.
#pragma once

#include "workloads/models/transformer.h"
#include "workloads/text/choice.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// A part of a block. If a part is recomputed, the block does not save what the part makes (NVIDIA/Megatron-LM,
// megatron/core/transformer/transformer_config.py, recompute_modules).
enum class BlockModule : std::uint8_t {
    CoreAttention,     // scores and probabilities of attention, not the products before and after
    Norms,             // norms before attention, Mamba-2, MLP and experts
    UpProjection,      // of latent attention: queries, keys and values, with their rotation
    Activation,        // of a dense MLP and of shared experts
    ExpertActivation,  // of routed experts
    Mlp,               // a dense MLP
    Experts,           // router, messages, routed and shared experts
    SharedExperts,
    Operators,  // all but attention, the scan and the first, third, .. product of the block (pytorch/torchtitan,
                // SelectiveAC)
    Block
};

// A set of modules, with a bit for each.
enum class ModuleSet : std::uint16_t {};
template <class... Modules>
constexpr ModuleSet set_of(Modules... modules) {
    return static_cast<ModuleSet>((0 | ... | (1 << static_cast<int>(modules))));
}
inline constexpr int kAllModules = (1 << (static_cast<int>(BlockModule::Block) + 1)) - 1;
constexpr bool overlap(ModuleSet a, ModuleSet b) { return (static_cast<int>(a) & static_cast<int>(b)) != 0; }
constexpr bool has(ModuleSet set, BlockModule module) { return overlap(set, set_of(module)); }
constexpr ModuleSet joined(ModuleSet a, ModuleSet b) {
    return static_cast<ModuleSet>(static_cast<int>(a) | static_cast<int>(b));
}

// Words for sets.
template <>
inline constexpr Choice<ModuleSet> kChoices<ModuleSet>[] = {
    {"none", {}},
    {"selective", set_of(BlockModule::CoreAttention)},
    {"norms", set_of(BlockModule::Norms, BlockModule::Activation, BlockModule::ExpertActivation)},
    {"operators", set_of(BlockModule::Operators)},
    {"full", set_of(BlockModule::Block)}};

struct BlockModuleFacts {
    BlockModule module;
    std::string_view name;                              // Megatron-Core's, where it has the module
    bool (*is_in)(const Transformer& model) = nullptr;  // null: in every model
};
// The facts of all modules, in the order of the enum.
const std::vector<BlockModuleFacts>& block_modules();
// Returns the names of the modules of a set.
std::vector<std::string_view> names_of_modules(ModuleSet set);
// Returns the first module of a set that no block of the model has, or null.
const BlockModuleFacts* missing_module(ModuleSet set, const Transformer& model);

// Prints the word of a set, or the names of its modules, as in "layernorm+mlp".
std::string print_modules(ModuleSet set);
// Reads words and names of modules that '+' joins. Returns nothing if one of them is unknown.
std::optional<ModuleSet> parse_modules(std::string_view text);
// Returns all words and names.
std::vector<std::string_view> words_for_modules();

// Which blocks recompute. A block's place is its number in its stage, from 0.
enum class BlockRule : std::uint8_t {
    Share,  // of each block this share: the mean where stages have different numbers of recomputed blocks
    Every,  // every n-th block of a stage (pytorch/torchtitan, selective_ac_option)
    First,  // the first n blocks of each stage (NVIDIA/Megatron-LM, recompute_method: block)
    Group   // all, in groups of n blocks that save the input of the group only (recompute_method: uniform)
};
struct BlockRuleFacts {
    BlockRule rule;
    std::string_view name;
    double least, most;
    bool is_whole = true;
};
inline constexpr BlockRuleFacts kBlockRules[] = {{BlockRule::Share, "share", 0, 1, false},
                                                 {BlockRule::Every, "every", 1, 1e6},
                                                 {BlockRule::First, "first", 1, 1e6},
                                                 {BlockRule::Group, "group", 1, 1e6}};
constexpr const BlockRuleFacts& facts_of(BlockRule rule) { return kBlockRules[static_cast<std::size_t>(rule)]; }

struct RecomputedBlocks {
    BlockRule rule = BlockRule::Share;
    double number = 1;

    bool operator==(const RecomputedBlocks&) const = default;
    bool are_all() const { return rule != BlockRule::First && number == 1; }
    // Returns the share of the block at this place that is recomputed. A place below 0 is not known: the mean.
    double share_at(int place) const;
    // Returns the share of a module of further tokens that is recomputed. Rules with places count blocks only, and a
    // group does not have a module (NVIDIA/Megatron-LM, multi_token_prediction.py).
    double share_of_further() const { return rule == BlockRule::Share ? number : are_all() || group() > 1 ? 1 : 0; }
    int group() const { return rule == BlockRule::Group ? static_cast<int>(number) : 1; }
    bool depend_on_places() const { return rule != BlockRule::Share && !are_all(); }
};

}  // namespace pw
