// What the layers of a config.json have.
#include "workloads/models/transformer_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace pw {
namespace {

const KeyNames kActiveNames = {"num_experts_per_tok", "experts_per_token", "num_experts_per_token"};

// Letters of hybrid_override_pattern and words of layers_block_type (Nemotron-H, arXiv 2504.03624): a part of a layer
// each.
struct PatternLetter {
    char letter;
    std::string_view word;
    LayerForm form;
};
constexpr PatternLetter kPatternLetters[] = {{'M', "mamba", {Mixer::Mamba, Feed::None}},
                                             {'*', "attention", {Mixer::Attention, Feed::None}},
                                             {'-', "mlp", {Mixer::None, Feed::Mlp}},
                                             {'E', "moe", {Mixer::None, Feed::Experts}}};

// Words of layer_types.
struct MixerWord {
    std::string_view word;
    Mixer mixer;
};
constexpr MixerWord kMixerWords[] = {{"sliding_attention", Mixer::Window},
                                     {"full_attention", Mixer::Attention},
                                     {"attention", Mixer::Attention},
                                     {"mamba", Mixer::Mamba}};

std::vector<bool> layers_with_experts(const Yaml& at, int layers) {
    const int step = number_or(at, {"decoder_sparse_step"}, 1, 1, kMostTransformerLayers);
    const int dense = number_or(at, {"first_k_dense_replace"}, 0, 0, kMostTransformerLayers);
    const int frequency = number_or(at, {"moe_layer_freq"}, 1, 1, kMostTransformerLayers);
    std::vector<bool> marked(static_cast<std::size_t>(layers));
    for (int layer = 0; layer < layers; ++layer)
        marked[static_cast<std::size_t>(layer)] = (layer + 1) % step == 0 && layer >= dense && layer % frequency == 0;
    if (at["mlp_only_layers"].present())
        for (const Yaml& layer : at["mlp_only_layers"].items())
            marked[static_cast<std::size_t>(layer.integer(0, 0, layers - 1))] = false;
    return marked;
}

// Returns the forms of a pattern, or of a list of words, and notes the mistake of an unknown one.
std::vector<LayerForm> forms_of_pattern(const Yaml& pattern) {
    std::vector<LayerForm> forms;
    if (pattern.is_list()) {
        std::vector<std::string_view> words;
        for (const PatternLetter& row : kPatternLetters)
            words.push_back(row.word);
        for (const Yaml& item : pattern.items()) {
            const std::string word = item.choice("", words);
            for (const PatternLetter& row : kPatternLetters)
                if (row.word == word)
                    forms.push_back(row.form);
        }
        return forms;
    }
    for (const char letter : pattern.text()) {
        const auto* const row = std::find_if(std::begin(kPatternLetters), std::end(kPatternLetters),
                                             [&](const PatternLetter& one) { return one.letter == letter; });
        if (row == std::end(kPatternLetters)) {
            pattern.complain(fmt::format("'{}' has the letter '{}'", pattern.path(), letter),
                             "write M for Mamba-2, * for attention, - for an MLP and E for experts");
            return {};
        }
        forms.push_back(row->form);
    }
    return forms;
}

// Returns whether a list has an entry for each layer, and notes the mistake if it does not.
bool has_all_layers(const Yaml& list, std::size_t values, int layers) {
    if (std::cmp_equal(values, layers))
        return true;
    list.complain(fmt::format("'{}' has {} values, but there are {} layers", list.path(), values, layers),
                  "write one for each layer");
    return false;
}

// Sets the layers with a window among the layers with attention.
void set_windows(const Yaml& at, const Family& family, std::vector<Mixer>& mixers) {
    const int first = number_or(at, {"max_window_layers"}, 0, 0, kMostTransformerLayers);
    const int full = number_or(at, {"sliding_window_pattern"}, family.full_every, 1, kMostTransformerLayers);
    for (std::size_t layer = static_cast<std::size_t>(first); layer < mixers.size(); ++layer)
        if (mixers[layer] == Mixer::Attention && (full == 0 || (static_cast<int>(layer) + 1) % full != 0))
            mixers[layer] = Mixer::Window;
}

// Returns how the tokens of each layer reach one another, by the lists of Mamba's families, else by attention's.
std::vector<Mixer> mixers_of(const Yaml& at, const Family& family, int layers, bool has_window) {
    std::vector<Mixer> mixers(static_cast<std::size_t>(layers), family.mixer);
    const Yaml types = at["layer_types"], indices = at["attn_layer_indices"];
    if (types.present()) {
        std::vector<std::string_view> words;
        for (const MixerWord& row : kMixerWords)
            words.push_back(row.word);
        const std::vector<Yaml> listed = types.items();
        if (types.is_list() && has_all_layers(types, listed.size(), layers))
            for (std::size_t layer = 0; layer < listed.size(); ++layer) {
                const std::string word = listed[layer].choice("", words);
                for (const MixerWord& row : kMixerWords)
                    if (row.word == word)
                        mixers[layer] = row.mixer;
            }
    } else if (indices.present()) {
        std::fill(mixers.begin(), mixers.end(), Mixer::Mamba);
        for (const Yaml& layer : indices.items())
            mixers[static_cast<std::size_t>(layer.integer(0, 0, layers - 1))] = Mixer::Attention;
    } else if (has_window) {
        set_windows(at, family, mixers);
    }
    if (!has_window)
        std::replace(mixers.begin(), mixers.end(), Mixer::Window, Mixer::Attention);
    return mixers;
}

bool any_form(const std::vector<LayerForm>& forms, bool (*is_meant)(const LayerForm& form)) {
    return std::any_of(forms.begin(), forms.end(), is_meant);
}

// Removes what no layer has, and the list of forms if all layers have the usual form.
void simplify(Transformer& model) {
    if (!any_form(model.forms, [](const LayerForm& form) { return form.feed == Feed::Experts; }) &&
        !(model.mtp > 0 && model.form_of_mtp().feed == Feed::Experts))
        model.experts.reset();
    if (model.mtp == 0 && !model.experts)
        model.mtp_form.reset();
    if (!any_form(model.forms, [](const LayerForm& form) { return form.mixer == Mixer::Window; }))
        model.window = 0;
    std::vector<LayerForm> listed = std::exchange(model.forms, {});
    if (std::any_of(listed.begin(), listed.end(), [&](const LayerForm& form) { return form != model.form(0); }))
        model.forms = std::move(listed);
}

}  // namespace

void read_experts(const Yaml& at, Transformer& model) {
    const KeyNames counts = {"num_local_experts", "num_experts", "n_routed_experts"};
    const int count = number_or(at, counts, 0, 0, kMostExperts);
    if (count == 0)
        return;
    Experts experts{.count = count};
    experts.active = needed_number(at, kActiveNames, kMostExperts);
    if (experts.active > count)
        first_of(at, kActiveNames)
            .complain(fmt::format("a token takes {} experts of {}", experts.active, count), "correct one of them");
    experts.width = number_or(at, {"moe_intermediate_size"}, model.ffn, 1, kMostWidth);
    experts.shared_width =
        number_or(at, {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"},
                  std::int64_t{experts.width} * number_or(at, {"n_shared_experts"}, 0, 0, 256), 0, kMostWidth);
    experts.latent = number_or(at, {"moe_latent_size"}, 0, 0, kMostHidden);
    model.experts = experts;
}

void read_mamba(const Yaml& at, const Family& family, Transformer& model) {
    const bool is_all = family.mixer == Mixer::Mamba;  // the keys have no prefix
    const KeyNames counts = {"mamba_num_heads", "mamba_n_heads"}, own_counts = {"num_heads"};
    if (!is_all && !first_of(at, counts).present())
        return;
    Mamba mamba;
    mamba.heads = needed_number(at, is_all ? own_counts : counts, kMostHeads);
    const KeyNames widths = {"mamba_head_dim", "mamba_d_head"}, own_widths = {"head_dim"};
    mamba.head_width = needed_number(at, is_all ? own_widths : widths, kMostHeadWidth);
    mamba.groups = number_or(at, {"n_groups", "mamba_n_groups"}, 1, 1, kMostHeads);
    mamba.state = needed_number(at, {"ssm_state_size", "mamba_d_state", "state_size"}, kMostHeadWidth);
    mamba.kernel = number_or(at, {"conv_kernel", "mamba_d_conv"}, 4, 1, 64);
    mamba.chunk = number_or(at, {"chunk_size", "mamba_chunk_size"}, 256, 1, kMostWidth);
    if (mamba.heads % mamba.groups != 0)
        first_of(at, {"n_groups", "mamba_n_groups"})
            .complain(fmt::format("{} heads of Mamba do not divide into {} groups", mamba.heads, mamba.groups),
                      "correct one of them");
    model.mamba = mamba;
}

void read_forms(const Yaml& at, const Family& family, Transformer& model) {
    const Yaml pattern = first_of(at, {"hybrid_override_pattern", "layers_block_type"}), size = at["sliding_window"];
    const bool has_window = size.present() && flag_or(at["use_sliding_window"], true);
    model.window = has_window ? number_or(at, {"sliding_window"}, 0, 0, kMostPositions) : 0;
    if (pattern.present()) {
        const std::vector<LayerForm> forms = forms_of_pattern(pattern);
        if (!forms.empty() && has_all_layers(pattern, forms.size(), model.layers))
            model.forms = forms;
    } else {
        const std::vector<bool> with_experts = model.experts
                                                   ? layers_with_experts(at, model.layers)
                                                   : std::vector<bool>(static_cast<std::size_t>(model.layers));
        const std::vector<Mixer> mixers = mixers_of(at, family, model.layers, model.window > 0);
        for (std::size_t layer = 0; layer < mixers.size(); ++layer)
            model.forms.push_back({mixers[layer], with_experts[layer] ? Feed::Experts : family.feed});
    }
    model.mtp = number_or(at, {"num_nextn_predict_layers"}, 0, 0, 16);
    // Without modules the form is for workload.mtp_layers.
    if (const Yaml further = first_of(at, {"mtp_hybrid_override_pattern", "mtp_layers_block_type"});
        further.present() && (model.mtp > 0 || model.experts)) {
        const std::vector<LayerForm> parts = forms_of_pattern(further);
        if (parts.size() == 2 && parts[0].feed == Feed::None && parts[1].mixer == Mixer::None)
            model.mtp_form = LayerForm{parts[0].mixer, parts[1].feed};
        else if (model.mtp > 0)
            further.complain(fmt::format("'{}' is not a mixer and an MLP", further.path()), "write \"*E\" or \"*-\"");
    }
    const auto needs = [&](bool (*is_meant)(const LayerForm& form), bool has, const char* key, const char* words) {
        if (!has && (any_form(model.forms, is_meant) || (model.mtp_form && is_meant(*model.mtp_form))))
            first_of(at, {"hybrid_override_pattern", "layer_types", "attn_layer_indices"})
                .complain(fmt::format("layers have {}, but the model has no {}", words, key),
                          fmt::format("write \"{}\": ..", key));
    };
    const auto is_mamba = [](const LayerForm& form) { return form.mixer == Mixer::Mamba; };
    needs(is_mamba, model.mamba.has_value(), "mamba_num_heads", "Mamba-2");
    if (model.mamba && !any_form(model.forms, is_mamba))
        first_of(at, {"mamba_num_heads", "mamba_n_heads"})
            .complain("the model has heads of Mamba-2, but no layer with Mamba-2",
                      "write \"hybrid_override_pattern\": \"M-*-..\" or \"layer_types\": [\"mamba\", ..]");
    needs([](const LayerForm& form) { return form.feed == Feed::Experts; }, model.experts.has_value(),
          "n_routed_experts", "experts");
    simplify(model);
}

}  // namespace pw
