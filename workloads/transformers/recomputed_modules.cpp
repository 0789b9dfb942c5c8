#include "workloads/transformers/recomputed_modules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace pw {

namespace {

template <class Has>
bool any_layer(const Transformer& model, Has has) {
    for (int layer = 0; layer < model.layers; ++layer)
        if (has(model.form(layer)))
            return true;
    return model.mtp > 0 && has(model.form_of_mtp());
}

bool has_dense_mlp(const Transformer& model) {
    return any_layer(model, [](const LayerForm& form) { return form.feed == Feed::Mlp; });
}
bool has_experts(const Transformer& model) {
    return any_layer(model, [](const LayerForm& form) { return form.feed == Feed::Experts; });
}
bool has_shared_experts(const Transformer& model) { return has_experts(model) && model.experts->shared_width > 0; }
bool has_attention(const Transformer& model) {
    return any_layer(model, [](const LayerForm& form) { return form.has_attention(); });
}
bool has_latent_attention(const Transformer& model) { return model.latent && has_attention(model); }

}  // namespace

const std::vector<BlockModuleFacts>& block_modules() {
    static const std::vector<BlockModuleFacts> modules = {
        {BlockModule::CoreAttention, "core_attn", has_attention},
        {BlockModule::Norms, "layernorm"},
        {BlockModule::UpProjection, "mla_up_proj", has_latent_attention},
        {BlockModule::Activation, "mlp_act",
         [](const Transformer& model) { return has_dense_mlp(model) || has_shared_experts(model); }},
        {BlockModule::ExpertActivation, "moe_act", has_experts},
        {BlockModule::Mlp, "mlp", has_dense_mlp},
        {BlockModule::Experts, "moe", has_experts},
        {BlockModule::SharedExperts, "shared_experts", has_shared_experts},
        {BlockModule::Operators, name_of(set_of(BlockModule::Operators))},
        {BlockModule::Block, name_of(set_of(BlockModule::Block))}};
    return modules;
}

std::vector<std::string_view> names_of_modules(ModuleSet set) {
    std::vector<std::string_view> names;
    for (const BlockModuleFacts& facts : block_modules())
        if (has(set, facts.module))
            names.push_back(facts.name);
    return names;
}

const BlockModuleFacts* missing_module(ModuleSet set, const Transformer& model) {
    for (const BlockModuleFacts& facts : block_modules())
        if (has(set, facts.module) && facts.is_in != nullptr && !facts.is_in(model))
            return &facts;
    return nullptr;
}

std::string print_modules(ModuleSet set) {
    const std::string_view word = name_of(set);
    return word.empty() ? fmt::format("{}", fmt::join(names_of_modules(set), "+")) : std::string(word);
}

std::optional<ModuleSet> parse_modules(std::string_view text) {
    ModuleSet set = {};
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find('+', begin), text.size());
        const std::string_view name = text.substr(begin, end - begin);
        std::optional<ModuleSet> word = parse_choice<ModuleSet>(name);
        const auto named = std::ranges::find(block_modules(), name, &BlockModuleFacts::name);
        if (!word && named != block_modules().end())
            word = set_of(named->module);
        if (!word)
            return std::nullopt;
        set = joined(set, *word);
        begin = end + 1;
    }
    return set;
}

std::vector<std::string_view> words_for_modules() {
    std::vector<std::string_view> words = names_of<ModuleSet>();
    for (const BlockModuleFacts& facts : block_modules())
        if (!parse_choice<ModuleSet>(facts.name))
            words.push_back(facts.name);
    return words;
}

double RecomputedBlocks::share_at(int place) const {
    switch (rule) {
        case BlockRule::Share:
            return number;
        case BlockRule::Every:
            return place < 0 ? 1 / number : (place + 1) % static_cast<int>(number) == 0 ? 1 : 0;
        case BlockRule::First:
            return place < 0 || place < number ? 1 : 0;
        case BlockRule::Group:
            break;
    }
    return 1;
}

}  // namespace pw
