// Galvatron's profiles of a model, PKU-DAIR/Hetu-Galvatron@cea12ff: a file with times and a file with sizes.
//
// Times (galvatron/core/profiler/model_profiler.py, _process_computation_data): `layertype_0_bsz4_seq2048` is the
// forward of a block per sample of 4, in ms, `layertype_other_bsz4_seq2048` the rest of the forward. The search
// engine takes twice the forward for a backward (core/search_engine/search_engine.py, bct_fct_coe). The first and the
// last stage each take half of the rest (core/cost_model/components/embedding_lmhead_cost.py).
//
// Sizes (_process_single_sequence_config) are in MiB, by length of sequences: `parameter_size` of a block in fp32, what
// a block keeps for a sample by degree of tensor parallelism, and both for what the first and the last stage have
// besides blocks, where `model_states` are four times the weights.
#include "workloads/costs/profiled_layers.h"
#include "workloads/models/blocks.h"
#include "workloads/models/precision.h"
#include "workloads/models/transformer.h"
#include "workloads/text/yaml.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

namespace pw {
namespace {

constexpr double kMebibyte = 1 << 20;
constexpr int kBackwards = 2;       // times as long as the forward
constexpr int kStates = 4;          // weights, gradients and two moments, each as large as the weights
constexpr double kSameSize = 0.01;  // relative difference of a measured size
constexpr std::string_view kTimesWord = "computation", kSizesWord = "memory";

// Returns the number after a word, 0 if there is none.
int number_after(std::string_view word, const std::string& text) {
    const std::string digits = text.substr(std::min(word.size(), text.size()));
    return text.starts_with(word) && is_number(digits) && digits.size() < 8 ? std::stoi(digits) : 0;
}

// The forwards of a block and of the rest of the model for all samples together, by the number of samples.
struct ForwardTimes {
    std::map<int, Yaml> block, rest;
};

// Returns the times by the length of sequences. Other keys are sums from which Galvatron made these times. Like its
// search engine, this takes the numbers at the end of a key: older keys are layertype_other_0_bsz1_seq2048.
std::map<int, ForwardTimes> read_forwards(const Yaml& root) {
    std::map<int, ForwardTimes> by_length;
    for (const auto& [key, value] : root.entries()) {
        if (!key.starts_with("layertype_"))
            continue;
        std::string name = key;
        std::ranges::replace(name, '_', '.');
        const std::vector<std::string> parts = components_of(name);
        if (parts[1] != "0" && parts[1] != "other") {
            value.complain(fmt::format("the model has layers of several types ('{}')", key),
                           "profiles of one type are read; write a layer graph (*.yaml) or a table (*.csv)");
            return {};
        }
        const std::size_t count = parts.size();
        const int samples = count < 4 ? 0 : number_after("bsz", parts[count - 2]);
        const int length = count < 4 ? 0 : number_after("seq", parts[count - 1]);
        ForwardTimes& times = by_length[length];
        if (samples > 0 && length > 0)
            (parts[1] == "0" ? times.block : times.rest).emplace(samples, value);
    }
    by_length.erase(0);
    std::erase_if(by_length, [](const auto& entry) { return entry.second.block.empty(); });
    return by_length;
}

// Returns the times of the length that is asked for, or of the only length (0). Both maps have the same numbers of
// samples.
ForwardTimes forwards_of(const Yaml& root, int& length) {
    const std::map<int, ForwardTimes> by_length = read_forwards(root);
    if (by_length.empty() && root.source().clean())
        root.complain("the file has no times of a block, such as 'layertype_0_bsz1_seq4096'",
                      "name Galvatron's computation profile; workload: {memory_profile: FILE} names a memory profile");
    root.source().throw_if_mistaken();
    if (length == 0 && by_length.size() == 1)
        length = by_length.begin()->first;
    if (!by_length.contains(length)) {
        std::vector<int> lengths;
        for (const auto& [known, times] : by_length)
            lengths.push_back(known);
        root.complain(length == 0 ? "the profile has sequences of several lengths"
                                  : fmt::format("the profile has no times for sequences of {} tokens", length),
                      fmt::format("write workload: {{sequence_length: {}}}", fmt::join(lengths, " | ")));
        root.source().throw_if_mistaken();
    }
    const ForwardTimes& found = by_length.at(length);
    for (const auto& [here, there, type] :
         {std::tuple(&found.block, &found.rest, "other"), std::tuple(&found.rest, &found.block, "0")})
        for (const auto& [samples, value] : *here)
            if (!there->contains(samples))
                value.complain(fmt::format("'layertype_{}_bsz{}_seq{}' is missing", type, samples, length),
                               fmt::format("add it, or remove '{}'", value.path()));
    root.source().throw_if_mistaken();
    return found;
}

std::map<int, PassTimes> passes_of(const std::map<int, Yaml>& forwards, double share, Bytes weights) {
    std::map<int, PassTimes> times;
    for (const auto& [samples, value] : forwards) {
        const double ms = value.number(0, 0, kLongestLayer / 1e6 / kBackwards / samples);
        PassTimes& passes = times[samples];
        passes.forward = std::llround(share * ms * samples * 1e6);
        passes.backward = kBackwards * passes.forward;
        share_backward(passes, weights);
    }
    return times;
}

// What a part of the model has and keeps for a sample.
struct PartSizes {
    Bytes weights = 0, kept = 0;
};

struct ModelSizes {
    PartSizes first, block, last;
    int measured_length = 0;  // of the sequences of `kept`, before it is scaled
};

class SizeReader {
public:
    SizeReader(const Yaml& root, int length) : root_(root), length_(length) {}

    ModelSizes read() {
        suffix_ = root_["layertype_0_sp"].present() ? "_sp" : "";
        const Yaml block = need(root_, "layertype_0" + suffix_);
        const int measured = measured_length(block);
        if (measured == 0 && block.source().clean())
            block.complain(fmt::format("'{}' has no sizes by length of sequences", block.path()),
                           R"(write {"4096": {"parameter_size": 832.25, ...}})");
        root_.source().throw_if_mistaken();
        key_ = std::to_string(measured);
        scale_ = static_cast<double>(length_) / measured;
        const Yaml sizes = block[key_];
        const ModelSizes read{
            .first = stage_sizes("other_memory_pp_on_first"),
            .block = {size(need(sizes, "parameter_size"), 1),
                      size(need(need(sizes, "tp_activation_per_bsz_dict"), "1"), scale_)},
            .last = stage_sizes("other_memory_pp_on_last"),
            .measured_length = measured,
        };
        root_.source().throw_if_mistaken();
        return read;
    }

private:
    static Yaml need(const Yaml& map, const std::string& key) {
        const Yaml value = map[key];
        if (!value.present() && map.source().clean())
            map.complain(fmt::format("'{}' is missing", value.path()),
                         "name the memory profile that Galvatron made of the same model");
        return value;
    }

    static Bytes size(const Yaml& mebibytes, double scale) {
        const double most = static_cast<double>(kLargestLayer) / kMebibyte / std::max(1.0, scale);
        return std::llround(scale * mebibytes.number(0, 0, most) * kMebibyte);
    }

    // The length itself, else the longest: Galvatron scales what is kept from there (memory_profile_mode sequence).
    int measured_length(const Yaml& block) const {
        int longest = 0;
        for (const auto& [key, value] : block.entries())
            if (const int length = number_after("", key); length == length_)
                return length;
            else
                longest = std::max(longest, length);
        return longest;
    }

    // What a stage has besides blocks, without tensor parallelism.
    PartSizes stage_sizes(const std::string& name) const {
        const Yaml sizes = need(need(root_, name + suffix_), key_);
        return {size(need(need(sizes, "model_states"), "1"), 1) / kStates,
                size(need(need(sizes, "activation"), "1"), scale_)};
    }

    Yaml root_;
    int length_;
    std::string suffix_, key_;
    double scale_ = 1;
};

// Returns where the sizes are: the given file, or the file next to the times that Galvatron names alike.
std::string path_of_sizes(const std::string& times, const std::string& given) {
    std::filesystem::path path = given;
    if (given.empty()) {
        std::string name = std::filesystem::path(times).filename().string();
        if (name.starts_with(kTimesWord))
            path = std::filesystem::path(times).replace_filename(name.replace(0, kTimesWord.size(), kSizesWord));
    }
    std::error_code error;
    if (!path.empty() && std::filesystem::is_regular_file(path, error))
        return path.string();
    fail(
        "'{}' is a profile of Galvatron without sizes: {}\n  help: write workload: {{memory_profile: FILE}}, with the "
        "memory profile that Galvatron made of the same model (memory_profiling_*.json)",
        times, path.empty() ? "its name does not say where they are" : fmt::format("there is no '{}'", path.string()));
}

// Galvatron's names of files have the precision of the measurement: computation_profiling_bf16_llama2-7b_all.json.
Precision precision_in(const std::string& path) {
    std::string name = std::filesystem::path(path).stem().string();
    std::ranges::replace(name, '_', '.');
    for (const std::string& part : components_of(name))
        if (const std::optional<Precision> precision = parse_choice<Precision>(part))
            return *precision;
    return Precision::Bf16;
}

// The number of blocks and their width, which the profiles do not have.
struct BlockShape {
    int blocks = 0, width = 0;
    std::vector<std::string> models = {};  // that these numbers are of, empty: they were given
};

// Takes what is not given from the transformers of this build whose blocks have as many parameters, if all agree. A
// layer of a hybrid has attention or an MLP, not both.
BlockShape shape_of(BlockShape given, Bytes weights, const std::string& path) {
    if (given.blocks > 0)
        return given;
    std::set<std::pair<int, int>> found;
    for (const Transformer& model : transformer_presets()) {
        const TransformerParameters parameters = parameters_of(model);
        const double bytes = 4.0 * static_cast<double>(parameters.attention + parameters.dense);
        if (model.experts || model.mamba || std::abs(static_cast<double>(weights) / bytes - 1) > kSameSize)
            continue;
        found.emplace(model.layers, model.hidden);
        given.models.push_back(model.name);
    }
    if (found.size() != 1)
        fail(
            "'{}' does not say how many blocks the model has\n  help: write workload: {{blocks: 32}}, the number of "
            "layers of its layertype_0",
            path);
    given.blocks = found.begin()->first;
    if (given.width == 0)
        given.width = found.begin()->second;
    return given;
}

std::vector<std::string> notes_of(const std::string& name, const BlockShape& shape, const ModelSizes& sizes,
                                  int length) {
    std::vector<std::string> notes{fmt::format(
        "{} has one time for embedding and head together: each has half of it; a backward takes twice its forward",
        name)};
    if (!shape.models.empty())
        notes.push_back(
            fmt::format("{} does not say how many blocks the model has: {} are taken, since a block has as "
                        "many parameters as a block of {}; workload: {{blocks: N}} takes another number",
                        name, shape.blocks, fmt::join(shape.models, ", ")));
    if (sizes.measured_length != length)
        notes.push_back(fmt::format("{} has sizes for sequences of {} tokens: activations are scaled to {}", name,
                                    sizes.measured_length, length));
    if (shape.width == 0)
        notes.push_back(fmt::format(
            "{} does not have the sizes of outputs: messages count 0 bytes; workload: {{embedding: N}} gives them",
            name));
    return notes;
}

}  // namespace

ProfiledModel read_galvatron_json(std::shared_ptr<Source> source, const FileModelOptions& options) {
    const Yaml root = Yaml::parse(std::move(source));
    const std::string path = root.source().name();
    int length = options.sequence_length;
    const ForwardTimes forwards = forwards_of(root, length);
    const ModelSizes sizes = SizeReader(Yaml::load(path_of_sizes(path, options.memory_profile)), length).read();
    const BlockShape shape = shape_of({options.blocks, options.embedding}, sizes.block.weights, path);
    const Bytes output = Bytes{length} * shape.width * bytes_of(precision_in(path)).activation;

    ProfiledModel result = empty_profiled_model(path);
    const auto add = [&](const std::string& name, LayerPart part, const std::map<int, Yaml>& times, double share,
                         const PartSizes& own, Bytes kept, Bytes made) {
        const int number = static_cast<int>(result.profile.layers.size());
        add_profiled_layer(result, name, number == 0 ? std::vector<int>{} : std::vector{number - 1},
                           passes_of(times, share, own.weights),
                           {.weights = own.weights, .output = made, .saved_until_input = kept}, 1);
        result.model.layers[static_cast<std::size_t>(number)].part = part;
    };
    add("embedding", LayerPart::Embedding, forwards.rest, 0.5, sizes.first, sizes.first.kept, output);
    // The input of a block is a part of what the block keeps. Here inputs are kept anyway.
    for (int block = 0; block < shape.blocks; ++block)
        add(fmt::format("layers.{}", block), LayerPart::Block, forwards.block, 1, sizes.block,
            std::max(Bytes{0}, sizes.block.kept - output), output);
    add("head", LayerPart::Head, forwards.rest, 0.5, sizes.last, sizes.last.kept, 0);
    root.source().throw_if_mistaken();
    result.profile.notes = notes_of(result.model.name, shape, sizes, length);
    return result;
}

}  // namespace pw
