// Rules of data, and of models that read tokens.
#include "job/config/blocks.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace pw {
namespace {

// Return the first model, and the first data set, that has tokens.
std::string_view model_of_tokens() {
    return (*std::ranges::find(built_in_models(), Labels::PerToken, &BuiltInModel::labels))->name;
}

std::string_view dataset_of_tokens() {
    return std::ranges::find(data_sources(), std::optional(Labels::PerToken), &DataSource::labels)->name;
}

}  // namespace

void check_tokens(const Yaml& at, const WorkloadConfig& workload, const DataSource& source) {
    const BuiltInModel* model = find_model(workload.model);
    const bool reads_tokens = model != nullptr && model->labels == Labels::PerToken;
    const bool has_tokens = source.labels == Labels::PerToken;
    if (reads_tokens && source.labels && !has_tokens)
        at["dataset"].complain(
            fmt::format("model: {} reads tokens, but {} has images", model->name, source.name),
            fmt::format("write dataset: {} or dataset: {}", dataset_of_tokens(), data_sources().front().name));
    if (!reads_tokens && has_tokens)
        at["dataset"].complain(
            fmt::format("dataset: {} has tokens, which model: {} cannot read", source.name, workload.model),
            fmt::format("write model: {}, or another dataset", model_of_tokens()));
    if (reads_tokens && has_tokens && workload.options.vocabulary < source.classes)
        at["vocabulary"].complain(
            fmt::format("the tokens of a {} are its bytes, but the model has a vocabulary of only {}", source.name,
                        workload.options.vocabulary),
            fmt::format("write vocabulary: {} or more", source.classes));
}

void check_path(const Yaml& at, const BuiltInModel* model) {
    if (!at["path"].present() || at["dataset"].present() || model == nullptr || model->build == nullptr)
        return;
    std::vector<std::string> readers;
    for (const DataSource& source : data_sources())
        if (source.open != nullptr && source.labels == model->labels)
            readers.push_back(fmt::format("dataset: {}", source.name));
    if (!readers.empty())
        at["path"].complain(fmt::format("'workload.path' names data, but the default, dataset: {}, has no files",
                                        data_sources().front().name),
                            fmt::format("write {}", fmt::join(readers, " or ")));
}

void check_heads(const Yaml& at, const BuiltInModel* model, const ModelOptions& options) {
    if (model == nullptr || !takes_key(*model, "heads"))
        return;
    const Yaml heads = at[at["heads"].present() ? "heads" : "embedding"];
    if (options.embedding % options.heads != 0)
        heads.complain(fmt::format("an embedding of {} cannot be divided into {} heads of equal width",
                                   options.embedding, options.heads),
                       "choose heads that divide the embedding");
    if (!takes_key(*model, "key_value_heads"))
        return;
    if (const int width = options.embedding / options.heads; width % 2 != 0)
        heads.complain(fmt::format("{} heads of an embedding of {} are {} wide, and rotary positions turn pairs",
                                   options.heads, options.embedding, width),
                       "choose heads of an even width");
    if (options.key_value_heads > 0 && options.heads % options.key_value_heads != 0)
        at["key_value_heads"].complain(fmt::format("{} heads cannot share {} heads of keys and values equally",
                                                   options.heads, options.key_value_heads),
                                       fmt::format("write a number that divides {}", options.heads));
}

}  // namespace pw
