#include "workloads/transformers/recipes.h"

#include "workloads/error.h"
#include "workloads/text/embedded.h"
#include "workloads/transformers/recipes_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace pw {

namespace {

Recipe read_recipe(const Yaml& at) {
    const auto degree = [&](const char* key) { return static_cast<int>(at[key].integer(1, 1, 1'000'000)); };
    Recipe recipe;
    const Transformer* model = find_transformer(at["model"].text());
    if (model == nullptr)
        fail("the recipes of this build name the model '{}', which has no preset", at["model"].text());
    recipe.model = *model;
    recipe.device = at["device"].text();
    for (const Yaml& item : at["precisions"].items())
        recipe.precisions.push_back(item.choice(Precision::Bf16));
    for (const Yaml& item : at["devices"].items())
        recipe.devices.push_back(static_cast<int>(item.integer(1, 1, 1'000'000)));
    recipe.tensor = degree("tensor");
    recipe.pipeline = degree("pipeline");
    recipe.context = degree("context");
    recipe.expert = degree("expert");
    recipe.chunks = degree("chunks");
    recipe.micro_batch_size = degree("micro_batch_size");
    recipe.zero = static_cast<int>(at["zero"].integer(0, 0, 3));
    recipe.recompute = at["recompute"].choice(ModuleSet{});
    recipe.source = at["source"].text();
    return recipe;
}

std::vector<Recipe> read_recipes() {
    const Yaml root = parse_embedded("the recipes of this build", kRecipesText);
    std::vector<Recipe> all;
    for (const Yaml& at : root["recipes"].items()) {
        at.allow({"model", "device", "precisions", "devices", "tensor", "pipeline", "context", "expert", "chunks",
                  "micro_batch_size", "zero", "recompute", "source"});
        all.push_back(read_recipe(at));
    }
    root.source().throw_if_mistaken();
    return all;
}

// Two releases of a model may differ in their name and in the length of their sequences alone.
bool same_shapes(Transformer a, const Transformer& b) {
    a.name = b.name;
    if (a.position != PositionKind::Learned)
        a.positions = b.positions;
    return a == b;
}

// How far the nearest cluster that ran it is from this number of devices.
double distance_of(const Recipe& recipe, int devices) {
    double least = std::numeric_limits<double>::infinity();
    for (const int own : recipe.devices)
        least = std::min(least, std::abs(std::log(static_cast<double>(own) / devices)));
    return least;
}

}  // namespace

const std::vector<Recipe>& recipes() {
    static const std::vector<Recipe> all = read_recipes();
    return all;
}

const Recipe* nearest_recipe(const Transformer& model, std::string_view device, Precision precision, int devices) {
    const auto rank = [&](const Recipe& recipe) {
        const std::vector<Precision>& own = recipe.precisions;
        return std::pair(std::find(own.begin(), own.end(), precision) == own.end(), distance_of(recipe, devices));
    };
    const Recipe* nearest = nullptr;
    for (const Recipe& recipe : recipes())
        if (recipe.device == device && same_shapes(recipe.model, model) &&
            (nearest == nullptr || rank(recipe) < rank(*nearest)))
            nearest = &recipe;
    return nearest;
}

}  // namespace pw
