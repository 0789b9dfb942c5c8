// The keys of `workload` that say what is not trained.
#include "job/config/blocks.h"

namespace pw {
namespace {

constexpr std::string_view kLoraForm = "write lora: {rank: 16, targets: [qkv, proj, fc1, fc2]}";

constexpr KeyOf<Lora> kLoraKeys[] = {
    {"rank", integer_key<&Lora::rank>(1, 65'536)},
    {"targets",
     {special("a list", R"({"type": "array", "items": {"enum": ["qkv", "proj", "fc1", "fc2"]}, "minItems": 1})"),
      [](const KeyDomain&, const Yaml& at, Lora& lora, KeyReading&) {
          if (!at.present())
              return;
          lora.targets.clear();
          for (const Yaml& item : at.items())
              if (const std::optional<LoraTarget> target = item.choice<LoraTarget>(); target && !lora.has(*target))
                  lora.targets.push_back(*target);
      },
      [](const Lora& lora) {
          return print_list(lora.targets, [](LoraTarget target) { return std::string(name_of(target)); });
      }}},
};

}  // namespace

void read_frozen(const KeyDomain&, const Yaml& at, Config& config, KeyReading&) {
    if (!is_uniform(config))
        config.workload.frozen = read_layer_names(at);
}

std::string print_frozen(const Config& config) {
    if (is_uniform(config))
        return config.workload.uniform.frozen.empty() ? "" : print_items(config.workload.uniform.frozen);
    return config.workload.frozen.empty() ? "" : print_list(config.workload.frozen, quoted);
}

void read_lora(const KeyDomain&, const Yaml& at, Config& config, KeyReading& reading) {
    if (!at.present())
        return;
    Lora& lora = config.workload.lora.emplace();
    read_keys<Lora>(kLoraKeys, at, lora, reading);
    if (lora.rank == 0 || lora.targets.empty())
        at.complain(lora.rank == 0 ? "'workload.lora' has no rank" : "'workload.lora' has no targets",
                    std::string(kLoraForm));
    if (const auto& model = config.workload.transformer; model && (model->experts || model->latent))
        at.complain(fmt::format("adapters of {} are not in this version: it has {}", model->name,
                                model->experts ? "experts" : "compressed keys and values"),
                    "remove the key, or name a model without them");
}

std::string print_lora(const Config& config) {
    return config.workload.lora ? print_map<Lora>(kLoraKeys, *config.workload.lora, {}) : "";
}

std::string lora_schema() { return object_schema<Lora, kLoraKeys>(); }

}  // namespace pw
