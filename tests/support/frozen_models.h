// Models with frozen layers, for the tests of the executors, and the parameters that a run has written.
#pragma once

#include "exec/training/npy.h"
#include "tests/support/execution.h"
#include "workloads/models/frozen_layers.h"

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pw {

using Names = std::vector<std::string>;

inline Model with_frozen(Model model, const Names& frozen) {
    set_frozen(model.layers, frozen);
    return model;
}

// A model whose layers are frozen in many ways: layers without a backward, layers that make gradients of their inputs
// only or of their weights only, and layers of which one input has no gradient.
struct FrozenModels {
    const char* name;
    const char* yaml;
    Model whole;
    std::vector<Names> frozen;
    std::vector<const char*> splits;
};

inline std::vector<FrozenModels> frozen_models() {
    const auto built = [](const char* yaml) { return *Execution(yaml, {"cluster.devices=1"}).job().model; };
    return {{"resnet",
             kResNet,
             small_resnet(),
             {{"conv1", "bn1", "layer1", "layer2"},
              {"layer2.1"},
              {"*bn*", "*downsample.1"},
              {"conv1", "bn1", "layer1.0.downsample"},
              {"*conv*", "*downsample.0", "fc"}},
             {"[layer3.0]", "[layer2.1.conv2]"}},
            {"gpt",
             kSmallGpt,
             built(kSmallGpt),
             {{"wpe", "h.0"}, {"wte", "lm_head"}, {"h.*.ln_*"}, {"wte", "wpe", "h.0", "h.1", "lm_head"}},
             {"[h.1]", "[h.2.mlp.c_fc]"}},
            {"llama",
             kSmallLlama,
             built(kSmallLlama),
             {{"*norm*"},
              {"model.embed_tokens", "model.layers.0.input_layernorm", "*.0.self_attn.q_proj", "*.0.self_attn.v_proj"},
              {"model.embed_tokens", "*.0.*norm", "*.0.self_attn", "*.0.mlp.gate_proj"},
              {"model.embed_tokens", "*.0.*norm", "*.0.self_attn", "*.0.mlp.up_proj", "*.0.mlp.down_proj"}},
             {"[model.layers.1]", "[model.layers.0.mlp.up_proj]"}},
            {"unet",
             kSmallUNet,
             built(kSmallUNet),
             {{"down1"}, {"down1", "down2", "bottom"}, {"*bn*"}},
             {"[bottom.conv1]", "[up2.conv1]"}}};
}

using Values = std::map<std::string, std::vector<float>>;

inline Values values_in(const std::filesystem::path& folder) {
    Values values;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        values[entry.path().stem().string()] = read_npy(entry.path().string());
    return values;
}

inline bool is_frozen_parameter(const Model& model, const std::string& parameter) {
    const int layer = find_layer(model.layers, parameter.substr(0, parameter.rfind('.')));
    return model.layers[layer].frozen && parameter.find(".running_") == std::string::npos;
}

}  // namespace pw
