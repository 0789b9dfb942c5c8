// Plans to and from PyTorch: its files are read, exports run there, and what a file cannot express is noted or refused.
// bench/pytorch_schedules.py checks with PyTorch itself.
#include "schedules/csv/csv.h"
#include "schedules/passes/passes.h"
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"
#include "tests/support/shapes.h"
#include "workloads/error.h"

#include <fmt/format.h>

namespace pw {
namespace {

// PyTorch 2.15: ScheduleInterleaved1F1B and ScheduleDualPipeV, 2 ranks, 4 micro-batches, _dump_csv() as compute_comms.
constexpr const char* k1F1B =
    "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0F2,0SEND_F2,0B0,0WAIT_SEND_F0,0RECV_B1,0F3,0SEND_F3,0B1,0WAIT_SEND_"
    "F1,"
    "0RECV_B2,0B2,0WAIT_SEND_F2,0RECV_B3,0B3,0WAIT_SEND_F3,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD\r\n"
    "1UNSHARD,1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1RECV_F2,1F1,1B1,1SEND_B1,1RECV_F3,1F2,1B2,1SEND_B2,1F3,1B3,1SEND_B3,"
    "1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1RESHARD,1WAIT_SEND_B0,1WAIT_SEND_B1,1WAIT_SEND_B2,1WAIT_SEND_B3\r\n";
constexpr const char* kDualPipeV =
    "0UNSHARD,3UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,3RECV_F0,0F2,0SEND_F2,3F0,3RECV_F1,3I0,3SEND_B0,3W0,3F1,3RECV_F2,"
    "0RECV_B0,(0F3;3B1)OVERLAP_F_B,0SEND_F3,3SEND_B1,(3F2;0B0)OVERLAP_F_B,0WAIT_SEND_F0,3RECV_F3,0RECV_B1,3B2,3SEND_B2,"
    "(3F3;0B1)OVERLAP_F_B,0WAIT_SEND_F1,0RECV_B2,3B3,3SEND_B3,3REDUCE_GRAD,0RECV_B3,3WAIT_REDUCE_GRAD,3RESHARD,0I2,"
    "0WAIT_SEND_F2,0W2,0I3,0WAIT_SEND_F3,0W3,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD,3WAIT_SEND_B0,3WAIT_SEND_B1,"
    "3WAIT_SEND_B2,3WAIT_SEND_B3\r\n"
    "1UNSHARD,2UNSHARD,1RECV_F0,1F0,1RECV_F1,2F0,2SEND_F0,1RECV_F2,1F1,2F1,2SEND_F1,2RECV_B0,1F2,2B0,2WAIT_SEND_F0,"
    "(2F2;1B0)OVERLAP_F_B,2SEND_F2,1SEND_B0,1RECV_F3,2RECV_B1,(1F3;2B1)OVERLAP_F_B,2WAIT_SEND_F1,(2F3;1B1)OVERLAP_F_B,"
    "2SEND_F3,1SEND_B1,2RECV_B2,2B2,2WAIT_SEND_F2,1B2,1SEND_B2,2RECV_B3,2I3,2WAIT_SEND_F3,1I3,1SEND_B3,2W3,2REDUCE_"
    "GRAD,"
    "2WAIT_REDUCE_GRAD,2RESHARD,1W3,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1RESHARD,1WAIT_SEND_B0,1WAIT_SEND_B1,1WAIT_SEND_B2,"
    "1WAIT_SEND_B3\r\n";

// One communicator; transfers are posted when the list reaches them.
constexpr TransferMode kPyTorch{TransferMode::Communicator::One, TransferMode::Receive::Deferred,
                                TransferMode::Protocol::Rendezvous, false};

// The part of a plan that a file keeps, with the marks of overlapped pairs: everything, unless the plan never flushes.
// Such a plan is one mini-batch in a file, and transfers that are left out and added again pass its former updates.
// Transfers between the tasks of a pair go around it: receives before, sends after.
std::string kept(const Plan& plan, bool asynchronous, bool transfers) {
    std::string text;
    for (const auto& order : plan.order) {
        std::string first, sent;  // of a pair
        for (const Task& task : order) {
            if (task.with_next)
                first = print(task) + "&";
            else if (!first.empty() && is_send(task.op))
                sent += transfers || !asynchronous ? print(task) + " " : "";
            else if (is_compute(task.op))
                text += std::exchange(first, "") + print(task) + " " + std::exchange(sent, "");
            else if (!asynchronous || (transfers && is_transfer(task.op)))
                text += print(task) + " ";
        }
        text += '\n';
    }
    return text;
}

// Adds the plan if the schedule is defined for the shape.
void add_plan(std::vector<Plan>& plans, const Schedule& schedule, Shape shape, const PlanOptions& options) {
    if (schedule.updates == Updates::PerMiniBatch)
        shape.per_update = shape.microbatches;
    try {
        plans.push_back(make_plan(schedule, std::move(shape), options));
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::BadInput) << error.what();
    }
}

// Every schedule on 1 to 4 devices with 1 to 6 micro-batches, and with replicas on up to 3 stages.
std::vector<Plan> all_plans(const PlanOptions& options) {
    std::vector<Plan> plans;
    for (const Schedule& schedule : schedules())
        for (int m = 1; m <= 6; ++m) {
            for (int p = 1; p <= 4; ++p)
                add_plan(plans, schedule, shape_of(schedule, p, m), options);
            for (const Replicas& replicas : all_replicas(3))
                add_plan(plans, schedule, shape_of(replicas, m), options);
        }
    EXPECT_GT(plans.size(), 1000u);
    return plans;
}

bool has_idle_device(const Plan& plan) {
    return std::any_of(plan.order.begin(), plan.order.end(), [](const std::vector<Task>& order) {
        return std::none_of(order.begin(), order.end(), [](const Task& task) { return task.op == Op::Forward; });
    });
}

PlanOptions in_lanes(TransferMode::Communicator communicator) {
    PlanOptions options;
    options.transfers.communicator = communicator;
    return options;
}

}  // namespace

TEST(PyTorchCsv, ItsFilesArePlansFreeOfDeadlock) {
    for (const char* text : {k1F1B, kDualPipeV}) {
        const CsvPlan read = parse_csv(text, "plan.csv");
        for (const auto communicator :
             {TransferMode::Communicator::Edge, TransferMode::Communicator::Direction, TransferMode::Communicator::One})
            for (const auto receive : {TransferMode::Receive::Early, TransferMode::Receive::Deferred})
                prove(read, {communicator, receive, TransferMode::Protocol::Rendezvous, true});
    }
}

TEST(PyTorchCsv, ItsFilesArePrintedUnchangedExceptSharding) {
    std::string text = k1F1B;
    for (const char* cell : {"0UNSHARD,", ",0RESHARD", "1UNSHARD,", ",1RESHARD", "\r", "\r"})
        text.erase(text.find(cell), std::string_view(cell).size());
    EXPECT_EQ(print_csv(parse_csv(k1F1B, "plan.csv").plan, true), text);
}

TEST(PyTorchCsv, EveryExportIsReadBackOrRefused) {
    int refused = 0;
    for (const bool transfers : {false, true})
        for (const auto communicator : {TransferMode::Communicator::Edge, TransferMode::Communicator::One}) {
            const PlanOptions options = in_lanes(communicator);
            for (const Plan& plan : all_plans(options)) {
                SCOPED_TRACE(fmt::format("{}\n{}", plan.schedule, print(plan)));
                if (has_idle_device(plan)) {
                    EXPECT_THROW(print_csv(plan, transfers), Error);
                    ++refused;
                    continue;
                }
                const Plan read = parse_csv(print_csv(plan, transfers), "plan.csv", options.transfers).plan;
                ASSERT_EQ(kept(read, plan.asynchronous, transfers), kept(plan, plan.asynchronous, transfers));
                EXPECT_EQ(read.shape.devices, plan.shape.devices);
                EXPECT_EQ(read.shape.stages, plan.shape.stages);
            }
        }
    EXPECT_GT(refused, 0);
}

TEST(PyTorchCsv, OrdersForOneCommunicatorAreFreeOfDeadlockWherePyTorchPostsThem) {
    for (const Plan& plan : all_plans(in_lanes(TransferMode::Communicator::One)))
        check(plan, kPyTorch);
}

// As _validate_send_waits and the runtime of PyTorch require: every send has one wait after it, and every stage's
// gradients are reduced once, after the last of them.
TEST(PyTorchCsv, EveryExportHasTheRequiredWaitsAndReductions) {
    for (const Plan& plan : all_plans(in_lanes(TransferMode::Communicator::One))) {
        if (has_idle_device(plan))
            continue;
        const std::string text = print_csv(plan, true);
        std::size_t sends = 0, updated = 0;
        for (int device = 0; device < plan.shape.devices; ++device) {
            const std::vector<Task>& order = plan.order[device];
            sends += std::count_if(order.begin(), order.end(), [](const Task& task) { return is_send(task.op); });
            for (const int stage : plan.shape.stages_of(device))
                updated += std::any_of(order.begin(), order.end(),
                                       [&](const Task& task) { return task.op == Op::Update && task.stage == stage; });
        }
        const auto count = [&](std::string_view type) {
            std::size_t found = 0;
            for (std::size_t at = text.find(type); at != text.npos; at = text.find(type, at + 1))
                ++found;
            return found;
        };
        SCOPED_TRACE(text);
        EXPECT_EQ(count("WAIT_SEND_"), sends);  // the reader refuses a wait that does not follow its SEND
        EXPECT_EQ(count("SEND_"), 2 * sends);
        EXPECT_EQ(count("WAIT_REDUCE_GRAD"), updated);
        EXPECT_EQ(count("REDUCE_GRAD,"), 2 * updated - count("REDUCE_GRAD\n"));
    }
}

TEST_F(Cli, ExportsAreForOneCommunicatorUnlessTheConfigNamesAnother) {
    const std::string plan = "plan uniform.yaml --format csv-comms --set cluster.devices=2 --set pipeline.schedule=";
    for (const char* schedule : {"zb1p", "zb-v", "interleaved"}) {
        const std::string chunks = plan + schedule + (schedule[0] == 'z' ? " --set pipeline.stages=4" : "");
        EXPECT_EQ(run_well(chunks).out, run_well(chunks + " --set transfer.communicator=one").out);
        const Said said = run_well(chunks + " --set transfer.communicator=edge");
        EXPECT_TRUE(contains(said.err, "one communicator, in which this order may hang")) << said.err;
    }
}

// In separate lanes these transfers pass each other; in one lane they wait for each other.
TEST_F(Cli, AnOrderThatHangsInOneCommunicatorIsExportedOnRequestOnly) {
    write("file.yaml", "workload: {model: uniform}\npipeline: {schedule: early.csv}\n");
    write("early.csv",
          "0RECV_B0,0F0,0SEND_F0,0F1,0SEND_F1,0B0,0RECV_B1,0B1\n"
          "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
    const std::string error = error_of("plan file.yaml --format csv-comms", 3);
    EXPECT_TRUE(contains(error, "early.csv:1, cell 1: 0RECV_B0<1")) << error;
    EXPECT_TRUE(contains(error, "help: PyTorch has one communicator; set transfer.communicator")) << error;
    const Said said = run_well("plan file.yaml --format csv-comms --set transfer.communicator=edge");
    EXPECT_TRUE(said.out.starts_with("0RECV_B0,0F0,")) << said.out;
    EXPECT_TRUE(contains(said.err, "one communicator, in which this order may hang")) << said.err;
}

TEST_F(Cli, ExportsNoteWhatAFileCannotExpress) {
    write("gpt.yaml", "workload: {model: gpt}\ncluster: {devices: 2}\npipeline: {micro_batches: 4}\n");
    write("unet.yaml", "workload: {model: unet}\ncluster: {devices: 4}\npipeline: {micro_batches: 4}\n");
    struct Case {
        const char* config;
        std::string_view note;
    };
    for (const auto& [config, note] : {
             Case{"uniform.yaml --set pipeline.schedule=pipedream --set training.steps=2",
                  "one mini-batch of 16 micro-batches with one update at its end; left out are weight policy stash and "
                  "the "
                  "updates of all stages after every micro-batch"},
             {"uniform.yaml --set pipeline.schedule=pipedream-2bw --set training.steps=2",
              "weight policy double_buffer and the updates of all stages after every 8 micro-batches"},
             {"uniform.yaml --set pipeline.schedule=pipedream --set pipeline.weights=latest --set "
              "pipeline.prediction=spectrain",
              "weight policy latest, the weights that spectrain predicts, and the updates"},
             {"uniform.yaml --set cluster.devices=5 --set pipeline.replicas=[1,2,1,1]",
              "PyTorch refuses the file, which has stages on several devices: 1"},
             {"uniform.yaml --set pipeline.schedule=forward-only",
              "PyTorch refuses the file: it has no backward passes"},
             {"gpt.yaml", "stages 0 and 1 share parameters, which is not in the file"},
             {"uniform.yaml --set pipeline.recompute=all", "no cells for R"},
             {"mlp.yaml --set training.clip_norm=1", "training.clip_norm is not in the file"},
             {"mlp.yaml --set pipeline.mini_batch=7",
              "the file does not say that there are 4 micro-batches of 2, the last of 1"},
         })
        for (const char* format : {" --format csv", " --format csv-comms"}) {
            const Said said = run_well(std::string("plan ") + config + format);
            EXPECT_TRUE(contains(said.err, note)) << config << format << '\n' << said.err;
        }
    const std::string skips = run_well("plan unet.yaml --format csv").err;
    EXPECT_TRUE(contains(skips, "stages 0 and 2, 0 and 3 exchange tensors")) << skips;
    EXPECT_TRUE(contains(error_of("plan unet.yaml --format csv-comms", 2), "not neighbours"));
    EXPECT_EQ(run_well("plan uniform.yaml --format csv-comms").err, "");
}

TEST_F(Cli, AnExportWithARowWithoutTasksIsRefused) {
    const std::string three =
        " --set pipeline.replicas=[3] --set workload.stages=1 --set cluster.devices=3 --set "
        "pipeline.micro_batches=2";
    for (const char* format : {"csv", "csv-comms"}) {
        const std::string error = error_of(fmt::format("plan uniform.yaml --format {}{}", format, three), 2);
        EXPECT_TRUE(contains(error, "device 2 runs no micro-batch")) << error;
        EXPECT_TRUE(contains(error, "help: give every device a micro-batch")) << error;
    }
    run_well("plan uniform.yaml" + three);
}

}  // namespace pw
