#include "workloads/stages/layout_notation.h"

#include "workloads/error.h"
#include "workloads/models/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw {

namespace {

constexpr std::size_t kMostLetters = 1'000'000;  // of a layout, with its separators

// Names that models give their layers outside the blocks, whole or as a part: "lm_head", "model.embed_tokens". Megatron
// counts the last norm and the output layer as part of L.
struct NamedPart {
    std::string_view name;
    bool is_prefix;
    LayerPart part;
};
constexpr NamedPart kNamedParts[] = {{"embed_out", false, LayerPart::Head},
                                     {"embed", true, LayerPart::Embedding},
                                     {"wte", false, LayerPart::Embedding},
                                     {"wpe", false, LayerPart::Embedding},
                                     {"tok_embed", true, LayerPart::Embedding},
                                     {"word_embed", true, LayerPart::Embedding},
                                     {"position_embed", true, LayerPart::Embedding},
                                     {"pos_embed", true, LayerPart::Embedding},
                                     {"token_embed", true, LayerPart::Embedding},
                                     {"norm", false, LayerPart::Head},
                                     {"norm_f", false, LayerPart::Head},
                                     {"final_norm", false, LayerPart::Head},
                                     {"final_layernorm", false, LayerPart::Head},
                                     {"final_layer_norm", false, LayerPart::Head},
                                     {"ln_f", false, LayerPart::Head},
                                     {"head", false, LayerPart::Head},
                                     {"lm_head", false, LayerPart::Head},
                                     {"output", false, LayerPart::Head},
                                     {"output_layer", false, LayerPart::Head},
                                     {"unembed", true, LayerPart::Head},
                                     {"logits", false, LayerPart::Head},
                                     {"loss", false, LayerPart::Loss},
                                     {"cross_entropy", false, LayerPart::Loss}};

std::string run_of(char letter, int length) {
    return length < 3 ? std::string(static_cast<std::size_t>(length), letter) : fmt::format("{}*{}", letter, length);
}

std::optional<LayerPart> part_by_name(const std::string& name) {
    const std::vector<std::string> components = components_of(name);
    if (std::any_of(components.begin(), components.end(), is_number))
        return std::nullopt;
    for (const NamedPart& row : kNamedParts)
        for (const std::string& component : components)
            if (row.is_prefix ? component.starts_with(row.name) : component == row.name)
                return row.part;
    return std::nullopt;
}

constexpr std::string_view kLetters = "EtmLL+";  // by LayerPart, in the order of Megatron. +: Joint

char letter_of(LayerPart part) { return kLetters[static_cast<std::size_t>(part)]; }
bool is_inner(char letter) { return letter == 't' || letter == 'm'; }  // of a block, or of a further token

// Returns a letter per layer, a blank for a layer without a letter of its own. A layer that is an end (E or L) by its
// name only is an end if all layers outside it are ends. Empty where the letters are not in the order of Megatron:
// embedding, blocks, further tokens, losses.
std::string letters_of_layers(const LayerGraph& graph, bool decoder) {
    const auto count = num_vertices(graph);
    std::string letters(count, ' '), by_name(count, ' ');
    for (std::size_t i = 0; i < count; ++i) {
        const Layer& layer = graph[i];
        if (layer.part)
            letters[i] = letter_of(*layer.part);
        else if (is_loss(layer.kind))
            letters[i] = 'L';
        else if (const auto part = part_by_name(layer.name))
            by_name[i] = letter_of(*part);
        else if (!decoder || is_number(components_of(block_of(layer.name)).back()))
            letters[i] = 't';
    }
    const auto first = letters.find_first_of("tmL"), last = letters.find_last_of("Etm");
    for (std::size_t i = 0; i < count; ++i)
        if (by_name[i] == 'E')
            letters[i] = first == std::string::npos || i < first ? 'E' : 't';
        else if (by_name[i] == 'L')
            letters[i] = last == std::string::npos || i > last ? 'L' : 't';
    const auto in_order = [](char a, char b) { return kLetters.find(a) < kLetters.find(b); };
    std::string own = letters;
    std::erase_if(own, [](char letter) { return letter == ' ' || letter == '+'; });
    return std::is_sorted(own.begin(), own.end(), in_order) ? letters : "";
}

std::string packed(const std::string& letters) {
    std::string text;
    for (std::size_t begin = 0, end = 0; begin < letters.size(); begin = end) {
        end = std::min(letters.size(), letters.find_first_not_of(letters[begin], begin));
        text += run_of(letters[begin], static_cast<int>(end - begin));
    }
    return text;
}

// Reads a layout into its letters and separators, without repetitions.
class LayoutReader {
public:
    explicit LayoutReader(std::string_view text) : text_(text) {}

    std::string read() {
        std::string letters;
        while (at_ < text_.size()) {
            const std::string group = text_[at_] == '(' ? group_in_parentheses() : letter();
            for (int count = repeats(); count > 0; --count)
                if ((letters += group).size() > kMostLetters)
                    fail("the layout '{}' has more than {} letters", text_, kMostLetters);
        }
        return letters;
    }

private:
    // Returns the next letter, nothing for a character that only separates.
    std::string letter() {
        const char letter = text_[at_++];
        if (letter == ',' || letter == ' ')
            return "";
        if (std::string_view("EtmL|").find(letter) == std::string_view::npos)
            fail(
                "the layout '{}' has '{}' at another place than expected\n  help: write E, t, m, L and |, with "
                "repetitions "
                "such as t*4 or (tt|)*4",
                text_, letter);
        return {letter};
    }

    std::string group_in_parentheses() {
        std::string letters;
        ++at_;
        while (at_ < text_.size() && text_[at_] != ')')
            letters += letter();
        if (at_ == text_.size())
            fail("the layout '{}' opens a parenthesis that is not closed", text_);
        ++at_;
        return letters;
    }

    int repeats() {
        if (at_ == text_.size() || text_[at_] != '*')
            return 1;
        const std::size_t begin = ++at_;
        while (at_ < text_.size() && is_number(text_.substr(at_, 1)))
            ++at_;
        const std::string number(text_.substr(begin, at_ - begin));
        if (number.empty() || number.size() > 5 || std::stoi(number) < 1)
            fail("the layout '{}' repeats something '{}' times\n  help: write a number from 1 to 99999 after *", text_,
                 number);
        return std::stoi(number);
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

void check_stage(const std::vector<std::string>& stages, std::size_t stage) {
    const std::string letters = stages[stage].empty() ? "nothing" : stages[stage];
    const std::size_t embedding = letters.rfind('E'), loss = letters.find('L');
    if (embedding != std::string::npos && (stage > 0 || embedding > 0))
        fail("stage {} of the layout is {}: the one E is the first letter of the first stage", stage, letters);
    if (loss != std::string::npos && (stage + 1 < stages.size() || loss + 1 < letters.size()))
        fail("stage {} of the layout is {}: the one L is the last letter of the last stage", stage, letters);
    if (stage == 0 && embedding == std::string::npos)
        fail("the layout begins with {}\n  help: begin it with E, the embedding", letters);
    if (stage + 1 == stages.size() && loss == std::string::npos)
        fail("the layout ends with {}\n  help: end it with L, the last norm, the output layer and the loss", letters);
}

// Modules of further tokens come after the last transformer layer.
void check_order(const std::vector<std::string>& stages) {
    bool has_further = false;
    for (std::size_t stage = 0; stage < stages.size(); ++stage)
        for (const char letter : stages[stage]) {
            if (letter == 't' && has_further)
                fail(
                    "stage {} of the layout is {}: a layer t comes after m\n  help: write all m between the last t and "
                    "L",
                    stage, stages[stage]);
            has_further = has_further || letter == 'm';
        }
}

// Returns the first layer of each block and of each module of further tokens, and the first layer after the last
// module.
std::vector<int> block_starts(const LayerGraph& graph, const std::string& letters) {
    std::vector<int> starts;
    std::map<std::string, bool> seen;
    int after = 0;
    for (std::size_t i = 0; i < letters.size(); ++i)
        if (is_inner(letters[i])) {
            if (!seen[block_of(graph[i].name)]) {
                std::size_t first = i;
                while (first > 0 && letters[first - 1] == '+')
                    --first;
                starts.push_back(static_cast<int>(first));
            }
            seen[block_of(graph[i].name)] = true;
            after = static_cast<int>(i) + 1;
        }
    while (after < static_cast<int>(letters.size()) && letters[static_cast<std::size_t>(after)] == ' ')
        ++after;
    starts.push_back(after);
    return starts;
}

}  // namespace

bool is_layout(std::string_view text) {
    return text.find('t') != std::string_view::npos &&
           text.find_first_not_of("EtmL|()*, 0123456789") == std::string_view::npos;
}

std::vector<std::string> stages_of_layout(std::string_view layout) {
    std::vector<std::string> stages = {""};
    for (const char letter : LayoutReader(layout).read())
        if (letter == '|')
            stages.emplace_back();
        else
            stages.back() += letter;
    for (std::size_t stage = 0; stage < stages.size(); ++stage)
        check_stage(stages, stage);
    check_order(stages);
    return stages;
}

std::vector<std::string> letters_of_blocks(const std::vector<int>& blocks, int mtp) {
    std::vector<std::string> stages;
    for (const int number : blocks)
        stages.emplace_back(static_cast<std::size_t>(number), 't');
    stages.front().insert(0, "E");
    stages.back() += std::string(static_cast<std::size_t>(mtp), 'm') + "L";
    return stages;
}

StageSplit split_by_layout(const LayerGraph& graph, const std::vector<std::string>& stages, bool is_decoder) {
    const std::string letters = letters_of_layers(graph, is_decoder);
    if (letters.find('E') == std::string::npos)
        fail("the model has no embedding and no blocks of a transformer");
    const std::vector<int> starts = block_starts(graph, letters);
    const auto in_model = [&](char letter) {
        std::set<std::string> names;
        for (std::size_t i = 0; i < letters.size(); ++i)
            if (letters[i] == letter)
                names.insert(block_of(graph[i].name));
        return names.size();
    };
    for (const auto& [letter, words] : {std::pair{'t', "transformer layers"}, {'m', "modules m of further tokens"}}) {
        std::size_t count = 0;
        for (const std::string& stage : stages)
            count += static_cast<std::size_t>(std::count(stage.begin(), stage.end(), letter));
        if (count != in_model(letter))
            fail("the layout has {} {}, the model {}", count, words, in_model(letter));
    }
    std::vector<int> first_layers = {0};
    std::size_t next = 0;
    for (std::size_t stage = 0; stage + 1 < stages.size(); ++stage) {
        next += static_cast<std::size_t>(std::count_if(stages[stage].begin(), stages[stage].end(), is_inner));
        if (starts[next] == static_cast<int>(num_vertices(graph)))
            fail("the last stage of the layout is L, and the model has no layer after its blocks");
        first_layers.push_back(starts[next]);
    }
    return split_at_layers(graph, first_layers);
}

std::string layout_of(const LayerGraph& graph, const StageSplit& split, bool is_decoder) {
    const std::string letters = letters_of_layers(graph, is_decoder);
    const std::size_t embedding = letters.find('E'), loss = letters.rfind('L');
    if (embedding == std::string::npos)
        return {};
    std::string layout;
    std::map<std::string, int> stage_of;  // by block
    for (int stage = 0; stage < split.stages(); ++stage) {
        std::string own;
        for (const int layer : split.layers[static_cast<std::size_t>(stage)]) {
            const auto i = static_cast<std::size_t>(layer);
            if (i == embedding || i == loss)
                own += letters[i];
            if (!is_inner(letters[i]))
                continue;
            const auto [found, is_new] = stage_of.emplace(block_of(graph[i].name), stage);
            if (found->second != stage)
                return {};  // the block is cut
            own += is_new ? std::string(1, letters[i]) : "";
        }
        if (loss == std::string::npos && stage + 1 == split.stages())
            own += 'L';
        if (own.empty() && !split.layers[static_cast<std::size_t>(stage)].empty())
            return {};
        layout += (stage == 0 ? "" : "|") + packed(own);
    }
    return layout;
}

}  // namespace pw
