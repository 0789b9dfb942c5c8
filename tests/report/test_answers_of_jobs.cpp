// What is asked about one plan.
#include "report/answers.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <numeric>
#include <string>
#include <vector>

namespace pw {

namespace {

class AnswersOfAJob : public testing::Test {
protected:
    Answers ask(const Questions& questions, const Hooks& hooks = {}) const {
        return answers_to(questions, source_, job_, report_, hooks);
    }

    TemporaryFolder folder_;
    const ConfigSource source_{folder_.write("cfg.yaml", R"(
workload: {model: uniform, stages: 2, forward: 1 ms, backward_input: 1 ms, backward_weight: 1 ms}
cluster: {devices: 2}
pipeline: {schedule: gpipe, micro_batches: 4}
)"),
                               {}};
    Notices notices_;
    const Job job_ = make_job(source_.load_with({}), notices_);
    const Report report_ = predicted_report(job_);
};

}  // namespace

TEST_F(AnswersOfAJob, AreEmptyWithoutAQuestion) {
    EXPECT_FALSE(Questions{}.any());
    EXPECT_TRUE(to_json(ask({})).is_null());
    EXPECT_EQ(to_text(ask({})), "");
}

TEST_F(AnswersOfAJob, TryOtherValues) {
    Questions questions;
    questions.what_if = {"pipeline.micro_batches=8", "pipeline.schedule=nope"};
    const Answers answers = ask(questions);
    ASSERT_EQ(answers.what_if.size(), 3u);  // each, and both
    ASSERT_TRUE(answers.what_if[0].report);
    EXPECT_EQ(answers.what_if[0].report->metrics.step_time, (8 + 1) * 3'000'000);
    EXPECT_DOUBLE_EQ(answers.what_if[0].change, 9.0 / 5 - 1);
    EXPECT_TRUE(answers.what_if[1].error);
    EXPECT_EQ(answers.what_if[2].set, questions.what_if);
    const Json json = to_json(answers)["what_if"];
    EXPECT_EQ(json[0]["step_time_ns"], 27'000'000);
    EXPECT_TRUE(json[1].contains("error"));
}

// The parts of the second plan are those of its own prediction.
TEST(AnswersOfATransformer, SayWhichPartsOfTheStepChange) {
    const TemporaryFolder folder;
    const ConfigSource source{folder.write("cfg.yaml", R"(
workload: {model: llama-3.2-1b, sequence_length: 4096}
cluster: {hosts: 1, devices_per_host: 8, device: h100-sxm-80}
pipeline: {mini_batch: 16, micro_batch_size: 1}
training: {precision: bf16, optimizer: adamw}
)"),
                              {}};
    Notices notices;
    const auto report_with = [&](const std::vector<std::string>& set) {
        return predicted_report(make_job(source.load_with(set), notices));
    };
    const Job job = make_job(source.load_with({}), notices);
    Questions questions;
    questions.what_if = {"parallel.zero=1"};
    const Answers answers = answers_to(questions, source, job, predicted_report(job));
    const Report other = report_with(questions.what_if);
    EXPECT_EQ(to_json(answers)["what_if"][0]["parts_ns"], to_json(other)["cluster"]["parts_ns"]);
    EXPECT_TRUE(contains(to_text(answers), "\npart of the step ")) << to_text(answers);
    EXPECT_TRUE(contains(to_text(answers), "now  parallel.zero=1  difference\n")) << to_text(answers);
}

TEST_F(AnswersOfAJob, RefuseTheOnlyValueThatIsAMistake) {
    Questions questions;
    questions.what_if = {"pipeline.schedule=nope"};
    refusal([&] { ask(questions); });
    questions.what_if = {"1f1b"};
    EXPECT_TRUE(contains(refusal([&] { ask(questions); }), "pipeline.schedule=1f1b"));
}

// With the second of two devices 10 % slower, that one is busy from the first forward's end to the last backward, which
// the first one follows: F, then 4 F and 4 B on the slow one, then B.
TEST_F(AnswersOfAJob, SlowOneDeviceDownAfterTheOther) {
    Questions questions;
    questions.stragglers = true;
    const Answers answers = ask(questions);
    ASSERT_EQ(answers.stragglers.size(), 2u);
    EXPECT_EQ(answers.stragglers[1].device, 1);
    EXPECT_NEAR(static_cast<double>(answers.stragglers[1].step_time), 3e6 + 1.1 * 12e6, 10);
    EXPECT_NEAR(answers.stragglers[1].change, 16.2 / 15 - 1, 1e-6);
    EXPECT_EQ(to_json(answers)["stragglers"][1]["slower"], 0.1);
}

TEST_F(AnswersOfAJob, DrawTheSameStepTimesFromOneSeed) {
    Questions questions;
    questions.samples = 20;
    questions.seed = 7;
    const Answers answers = ask(questions);
    ASSERT_TRUE(answers.draws);
    EXPECT_EQ(answers.draws->quantiles.front().first, "min");
    EXPECT_LE(answers.draws->quantiles.front().second, answers.draws->quantiles.back().second);
    EXPECT_DOUBLE_EQ(std::accumulate(answers.draws->slowest.begin(), answers.draws->slowest.end(), 0.0), 1);
    EXPECT_EQ(to_json(answers), to_json(ask(questions)));
    EXPECT_EQ(to_json(answers)["samples"]["draws"], 20);
    questions.jitter = "profile";
    refusal([&] { ask(questions); });
}

// 15 ms, of which a device computes for 12
TEST_F(AnswersOfAJob, ExplainTheStep) {
    Questions questions;
    questions.explain = questions.slack = true;
    const Answers answers = ask(questions);
    ASSERT_TRUE(answers.explanation);
    for (const IdleCauses& idle : answers.explanation->idle)
        EXPECT_EQ(idle.total(), 3'000'000);
    const Json row = to_json(answers)["explanation"]["idle"][0];
    EXPECT_EQ(row.size(), 11u);
    const Ns causes =
        std::accumulate(row.begin(), row.end(), Ns{0}, [](Ns sum, const Json& cause) { return sum + cause.get<Ns>(); });
    EXPECT_EQ(causes, 3'000'000);
    EXPECT_TRUE(answers.slack.starts_with("device,step,task,slack_ns\n0,0,0F0,0\n"));
    EXPECT_TRUE(contains(to_text(answers), "on the critical path"));
}

TEST_F(AnswersOfAJob, StopInTheMiddleOfDraws) {
    Questions questions;
    questions.samples = 100'000;
    std::atomic<int> asked = 0;
    const Answers answers = ask(questions, {{}, [&] { return ++asked > 100; }});
    ASSERT_TRUE(answers.draws);
    EXPECT_GT(answers.draws->draws, 0);
    EXPECT_LT(answers.draws->draws, questions.samples);
    EXPECT_DOUBLE_EQ(answers.draws->slowest[0] + answers.draws->slowest[1], 1);
}

TEST_F(AnswersOfAJob, StopBetweenAnswers) {
    Questions questions;
    questions.samples = 20;
    questions.explain = true;
    questions.what_if = {"pipeline.micro_batches=8", "pipeline.micro_batches=2"};
    EXPECT_TRUE(to_json(ask(questions, {{}, [] { return true; }})).is_null());
}

}  // namespace pw
