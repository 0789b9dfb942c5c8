// The bubbles that `pipewright list schedules` prints, under the conditions that it prints with them.
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/shapes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace pw {
namespace {

// Equal stages without messages, and the times of their passes.
struct DrawnTimes {
    int p, m, v;
    Ns f, i, w;
    Ns b() const { return i + w; }
};

struct ClosedForm {
    const char* schedule;
    const char* printed;
    double (*bubble)(const DrawnTimes& one);
    bool (*holds)(const DrawnTimes& one);
    enum class Of { Step, Span, AtMost } of = Of::Step;
};

bool always(const DrawnTimes&) { return true; }
bool fills(const DrawnTimes& one) { return one.m >= one.p; }
bool divides(const DrawnTimes& one) { return one.m % one.p == 0; }
bool is_even(const DrawnTimes& one) { return one.f == one.i && one.i == one.w; }
bool has_short_weights(const DrawnTimes& one) { return one.w <= one.f && one.w <= one.i; }
bool has_long_inputs(const DrawnTimes& one) { return one.f <= one.i && one.w <= one.i; }

constexpr ClosedForm kForms[] = {
    {"naive", "m (p-1) (F+B)", [](const DrawnTimes& c) { return c.m * (c.p - 1.0) * (c.f + c.b()); }, always},
    {"gpipe", "(p-1) (F+B)", [](const DrawnTimes& c) { return (c.p - 1.0) * (c.f + c.b()); }, always},
    {"1f1b", "(p-1) (F+B)", [](const DrawnTimes& c) { return (c.p - 1.0) * (c.f + c.b()); }, always},
    {"eager-1f1b", "(p-1) (F+B)", [](const DrawnTimes& c) { return (c.p - 1.0) * (c.f + c.b()); }, always},
    {"interleaved", "(p-1) (F+B) / v when m>=p", [](const DrawnTimes& c) { return (c.p - 1.0) * (c.f + c.b()); },
     fills},
    {"bfs", "(p-1) (F+B) / v when m>=p", [](const DrawnTimes& c) { return (c.p - 1.0) * (c.f + c.b()); }, fills},
    {"zb-h1", "(p-1) (F+I-W) when W<=F,I, m>=p", [](const DrawnTimes& c) { return (c.p - 1.0) * (c.f + c.i - c.w); },
     [](const DrawnTimes& c) { return has_short_weights(c) && fills(c); }},
    {"zb-h2", "(p-1) (F+I-2W) of span when W<=F,I, m>=2p-1",
     [](const DrawnTimes& c) { return (c.p - 1.0) * (c.f + c.i - 2 * c.w); },
     [](const DrawnTimes& c) { return has_short_weights(c) && c.m >= 2 * c.p - 1; }, ClosedForm::Of::Span},
    {"zb1p", "(p-1) (F+I-W) / v when W<=F,I, m>=p", [](const DrawnTimes& c) { return (c.p - 1.0) * (c.f + c.i - c.w); },
     [](const DrawnTimes& c) { return has_short_weights(c) && fills(c); }},
    {"zb-v", "0 of span when F=I=W, m>=2p", [](const DrawnTimes&) { return 0.0; },
     [](const DrawnTimes& c) { return is_even(c) && c.m >= 2 * c.p; }, ClosedForm::Of::Span},
    {"v-half", "<= (p-1) (F+B) / 2 when F=I=W, m>=p", [](const DrawnTimes& c) { return (c.p - 1.0) * (c.f + c.b()); },
     [](const DrawnTimes& c) { return is_even(c) && fills(c); }, ClosedForm::Of::AtMost},
    {"v-min", "<= 2 (p-1) (F+B) / 3 when F=I=W, m>=p",
     [](const DrawnTimes& c) { return 4 * (c.p - 1.0) * (c.f + c.b()) / 3; },
     [](const DrawnTimes& c) { return is_even(c) && fills(c); }, ClosedForm::Of::AtMost},
    {"hanayo", "2 (p-1) B / v when m=p, B>=F", [](const DrawnTimes& c) { return 2 * (c.p - 1.0) * c.b(); },
     [](const DrawnTimes& c) { return c.m == c.p && c.b() >= c.f; }},
    {"chimera", "(p-2) F when F=B, p divides m", [](const DrawnTimes& c) { return (c.p - 2.0) * c.f; },
     [](const DrawnTimes& c) { return c.f == c.b() && divides(c); }},
    {"dualpipe", "<= (p/2-1) max(F+2B-3W, 2F) when F,W<=I",
     [](const DrawnTimes& c) { return (c.p / 2.0 - 1) * std::max(c.f + 2 * c.b() - 3 * c.w, 2 * c.f); },
     has_long_inputs, ClosedForm::Of::AtMost},
    {"dualpipe-v", "<= (p-1) max(F+2B-3W, 2F) / 2 when F,W<=I",
     [](const DrawnTimes& c) { return (c.p - 1.0) * std::max(c.f + 2 * c.b() - 3 * c.w, 2 * c.f); }, has_long_inputs,
     ClosedForm::Of::AtMost},
    {"forward-only", "(p-1) F / v when p divides m", [](const DrawnTimes& c) { return (c.p - 1.0) * c.f; }, divides},
};

// Draws times that are often equal, so that conditions of equality hold often enough.
DrawnTimes drawn(Random& random, const ClosedForm& form) {
    DrawnTimes one{pick(random, 1, 6), pick(random, 1, 18), schedule_named(form.schedule).chunks, 0, 0, 0};
    if (std::string_view(form.printed).find("/ v") != std::string_view::npos)
        one.v = one.v > 2 || pick(random, 0, 1) == 1 ? 2 * pick(random, 1, 2) : one.v;
    if (pick(random, 0, 2) == 0)
        one.m = one.p * pick(random, 1, 4);
    const int most = pick(random, 0, 1) == 0 ? 2 : 30;
    one.f = pick(random, 1, most);
    one.i = pick(random, 1, most);
    one.w = pick(random, 0, most);
    if (pick(random, 0, 2) == 0)
        one.f = one.i + one.w;
    if (pick(random, 0, 2) == 0)
        one.i = one.w = one.f;
    return one;
}

double idle_in(const ClosedForm& form, const DrawnTimes& one) {
    const Plan plan = plan_of(form.schedule, one.p, one.m, one.v);
    const Metrics metrics = metrics_of(simulate(plan, uniform(plan.shape.stages, one.f, one.i, one.w)));
    const bool trains = schedule_named(form.schedule).trains;
    const Ns work = one.m * one.v * (one.f + (trains ? one.b() : 0));
    return static_cast<double>((form.of == ClosedForm::Of::Span ? metrics.span : metrics.makespan) - work);
}

TEST(ClosedForms, HoldUnderTheConditionsPrintedWithThem) {
    Random random(59);
    for (const ClosedForm& form : kForms) {
        EXPECT_EQ(schedule_named(form.schedule).bubble, form.printed);
        int compared = 0;
        for (int round = 0; round < 3000 && compared < 60; ++round) {
            const DrawnTimes one = drawn(random, form);
            if (!form.holds(one))
                continue;
            try {
                const double idle = idle_in(form, one), bubble = form.bubble(one);
                const std::string at = fmt::format("{} p {} m {} v {} F {} I {} W {}", form.schedule, one.p, one.m,
                                                   one.v, one.f, one.i, one.w);
                if (form.of == ClosedForm::Of::AtMost)
                    EXPECT_LE(idle, bubble + 1e-6) << at;
                else
                    EXPECT_NEAR(idle, bubble, 1e-6) << at;
                ++compared;
            } catch (const Error&) {  // the schedule is not defined for the shape
            }
        }
        EXPECT_EQ(compared, 60) << form.schedule;
    }
}

}  // namespace
}  // namespace pw
