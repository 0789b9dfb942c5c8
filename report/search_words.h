// What is said of found plans of layer graphs, and of found plans of transformers.
#pragma once

#include "report/plan_chart.h"
#include "report/plan_search.h"

#include <string>
#include <vector>

namespace pw {

// A row of the table of plans.
struct PlanRow {
    const FoundPlan* plan;
    std::vector<std::string> also = {};  // schedules that have the same plan
};

struct SearchWords {
    // Returns the best plan of each kind that fits, the best first.
    std::vector<PlanRow> (*rows)(const PlanSearch& search, std::size_t most);
    std::string (*table)(const PlanSearch& search, const std::vector<PlanRow>& rows);
    std::string (*counts)(const PlanSearch& search);  // "12 of 12 choices tried, ..."
    std::string (*rate)(const PlanSearch& search);    // what follows the step of the best plan
    // Returns the lines after the best plan's line. The table has at most `most` plans.
    std::string (*details)(const PlanSearch& search, std::size_t most);
    std::vector<std::string> (*short_parts)(const PlanChoice& choice);  // in charts
    Json (*json_of_plan)(const PlanSearch& search, const FoundPlan& plan);
    void (*complete_best)(const PlanSearch& search, Json& best);
    void (*complete)(const PlanSearch& search, Json& json);
    void (*refuse)(const PlanSearch& search);  // throws Error: no plan was found that fits
};

extern const SearchWords kLayerPlans, kTransformerPlans;
const SearchWords& words_of(const PlanSearch& search);

// The command says once what there is to say about the best plan.
Job quiet_job_of(const PlanSearch& search, const FoundPlan& plan);
// Returns the time of the passes of a micro-batch in a stage.
Ns time_of_passes(const StageCost& cost, const Job& job);
std::vector<PlanDot> dots_of(const PlanSearch& search);
// Returns how the blocks of a transformer are divided unless a plan names their numbers: "equal numbers of blocks".
const char* usual_division(const Setup& setup);
// Returns the memory that all devices have if it is the same and limited. Else kUnlimited.
Bytes memory_of_all(const Setup& setup);

}  // namespace pw
