// What people type wrong: the command, and what the message must contain. Rows with a title are on docs/errors.md,
// which PIPEWRIGHT_RECORD=1 writes again.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

namespace {

struct TypedMistake {
    const char* typed;
    std::vector<std::string> said;
    int code = 2;
    const char* title = nullptr;  // on the page; null: not on it
    const char* advice = "";      // on the page: what to do
};

constexpr const char* kFour =
    "workload: {model: uniform, stages: 4, forward: 1 us, backward_input: 1 us, backward_weight: 1 us}\n"
    "cluster:  {devices: 4}\n"
    "pipeline: {schedule: 1f1b, micro_batches: 8}\n";
constexpr const char* kGpt =
    "workload: {model: gpt, sequence_length: 16, vocabulary: 64, embedding: 32, blocks: 4, heads: 2}\n"
    "cluster:  {devices: 2}\n"
    "pipeline: {schedule: 1f1b, micro_batches: 4, micro_batch_size: 2}\n";

const std::vector<TypedMistake>& typed_mistakes() {
    static const std::vector<TypedMistake> kMistakes = {
        // options
        {"simulate four.yaml --micro-batches 8",
         {"unknown option '--micro-batches'", "did you mean '--set pipeline.micro_batches=8'?"},
         2,
         "A key of the config as an option",
         "Keys of the config are set by `--set KEY=VALUE`."},
        {"simulate four.yaml --pipeline-model-parallel-size=2", {"'--set pipeline.stages=2'"}},
        {"simulate four.yaml --schedule gpipe", {"--set pipeline.schedule=gpipe", "--schedules"}},
        {"simulate four.yaml --lr 0.1", {"--set training.learning_rate=0.1"}},
        {"simulate four.yaml -o x.svg", {"unknown option '-o'", "--plot FILE draws", "--trace FILE", "--csv FILE"}},
        {"run gpt.yaml -o x", {"unknown option '-o'", "--trace FILE", "--save DIR"}},
        {"search gpt.yaml --schedules all", {"--set search.schedules="}},
        {"simulate four.yaml --polt x.svg", {"did you mean '--plot'?"}},
        {"simulat four.yaml", {"unknown command 'simulat'", "did you mean 'simulate'?"}},
        {"help simulat", {"did you mean 'simulate'?"}},
        {"simulate four.yaml --samples 1e3", {"'1e3': write 1000"}},
        {"simulate four.yaml --schedules 1f1b,1F1B", {"schedule '1f1b' is listed twice", "name each schedule once"}},
        {"profile gpt.yaml --sizes 1,,2 -o p.yaml", {"'1,,2' lacks a number", "several are written as in 4,8"}},
        {"simulate four.yaml --plot x.svg --without legend,axes",
         {"'axes' is no part of a picture: memory, transfers"}},
        {"simulate four.yaml --plot x.svg --figure wide", {"'wide' is not column or page"}},
        {"simulate four.yaml --plot x.svg --width 3cm", {"'3cm' is not a width", "such as 8.5cm, 3.3in or 252pt"}},
        {"simulate four.yaml --plot x.svg --font-size 0", {"'0' is not a size of text", "such as 11"}},
        {"search gpt.yaml --time-limit 0", {"'0' is not a number of seconds above 0, such as 5"}},
        {"search gpt.yaml --time-limit 5s", {"'5s' is not a number of seconds above 0, such as 5"}},
        {"profile gpt.yaml --sizes '4;8' -o p.yaml", {"'4;8'", "several are written as in 4,8"}},
        {"simulate four.yaml --what-if zb-h1", {"--what-if zb-h1 has no '='", "--what-if pipeline.schedule=zb-h1"}},
        {"simulate four.yaml --what-if schedule=gpipe", {"here it is 'pipeline.schedule'"}},
        {"simulate four.yaml --json --csv -", {"both print to standard output", "--csv table.csv"}},
        {"simulate four.yaml -q -v", {"excludes"}},
        // files
        {"simulate FOUR.yaml",
         {"there is no file 'FOUR.yaml'", "did you mean 'four.yaml'?"},
         2,
         "A file that is not there",
         "Look at the name that is offered. Paths in a config start at the folder of the config."},
        {"simulate fuor.yaml", {"did you mean 'four.yaml'?"}},
        {"simulate four", {"did you mean 'four.yaml'?"}},
        {"simulate readme.md", {"this is not YAML", "name a config, a YAML file: is 'readme.md' one?"}},
        {"simulate longkey.yaml", {"a key has at most 1024 letters"}},
        {"search gpt.yaml -o best.txt", {"'best.txt' is no name of a config", "-o best.yaml"}},
        {"run gpt.yaml --checkpoint gpt.yaml", {"would replace 'gpt.yaml'", "write to another folder"}},
        {"run gpt.yaml --checkpoint four.yaml", {"is no folder", "name a folder"}, 1},
        {"simulate thousand.yaml --plot k.png",
         {"it shows up to 256 devices, the trace has 1000", "write .html, which shows up to 4096, or .json"},
         2,
         "More devices than a picture shows",
         "Pages draw what is in view, so they take more devices than pictures."},
        {"simulate nothing.yaml", {"cannot read 'nothing.yaml'", "name a YAML file"}},
        {"validate emptyfolder", {"holds no accuracy table and no checkpoint", "run --checkpoint"}},
        {"simulate four.yaml --plot x.SVG", {"suffix must be one of .svg", "small letters"}},
        {"simulate layers.yaml",
         {"'layers.yaml' is a model, not a config", "workload: {model: layers.yaml}"},
         2,
         "A model, a trace or a profile in place of a config",
         "Name the file in a config, as the help says."},
        {"simulate gpt.yaml --set cluster.profile=profile.yaml",
         {"the profile is of model 'mlp', not 'gpt'", "--> cluster.profile\n", "`pipewright profile`"},
         2,
         "A profile of another model",
         "Measure a profile for this config, or leave `cluster.profile` out."},
        // keys
        {"simulate four.yaml --set micro_batches=4",
         {"unknown key 'micro_batches'", "here it is 'pipeline.micro_batches'"},
         2,
         "A key without its block",
         "Write the whole path of the key; `pipewright list keys` has all."},
        {"simulate gpt.yaml --set workload.hidden_size=64",
         {"unknown key 'hidden_size' in 'workload'", "here it is 'embedding'"},
         2,
         "A key by the name that another tool has for it",
         "Names of Hugging Face, Megatron-LM, DeepSpeed and PyTorch are known; the help has the name here."},
        {"simulate gpt.yaml --set workload.num_layers=4", {"here it is 'blocks'"}},
        {"simulate gpt.yaml --set workload.num_attention_heads=4", {"here it is 'heads'"}},
        {"simulate gpt.yaml --set workload.seq_length=16", {"here it is 'sequence_length'"}},
        {"simulate gpt.yaml --set pipeline.num_microbatches=4", {"here it is 'micro_batches'"}},
        {"simulate gpt.yaml --set training.lr=0.1", {"here it is 'learning_rate'"}},
        {"simulate gpt.yaml --set training.adamw=true", {"here it is 'optimizer'"}},
        {"simulate gpt.yaml --set training.optimizer=adam", {"did you mean 'adamw'?"}},
        {"simulate gpt.yaml --set global_batch_size=8", {"here it is 'pipeline.mini_batch'"}},
        {"simulate gpt.yaml --set micro_batch_size=2", {"here it is 'pipeline.micro_batch_size'"}},
        {"simulate gpt.yaml --set pipeline_model_parallel_size=2", {"here it is 'pipeline.stages'"}},
        {"simulate gpt.yaml --set tensor_model_parallel_size=2", {"here it is 'parallel.tensor'"}},
        {"simulate gpt.yaml --set gradient_accumulation_steps=2", {"here it is 'pipeline.micro_batches'"}},
        {"search gpt.yaml --set 'search={schedule: all}'",
         {"unknown key 'schedule' in 'search'", "did you mean 'schedules'?"},
         2,
         "One value of a key that takes several",
         "Keys of a search have the plural: they take lists, `[4]` for one value."},
        {"search gpt.yaml --set 'search={micro_batch_size: 4}'", {"did you mean 'micro_batch_sizes'?"}},
        {"search gpt.yaml --set 'search={micro_batch_sizes: 4}'",
         {"'search.micro_batch_sizes' must be a list", "write [4]"}},
        {"search gpt.yaml --set pipeline.offload_states=[0] --set cluster.devices=2",
         {"plans of a search have unlike numbers of stages", "write offload_states: all"}},
        {"search gpt.yaml --set pipeline.offload_states=all",
         {"--> pipeline.offload_states", "copies to the memory of its host is not known", "write cluster.host_link"}},
        {"search gpt.yaml --set 'search={tensor: 2}'", {"'search.tensor' must be a list", "write [2]"}},
        {"search gpt.yaml --set search.context=1", {"'search.context' must be a list", "write [1]"}},
        {"search gpt.yaml --set search.slices=[1]", {"'search.slices[0]' is 1", "2"}},
        {"search gpt.yaml --set search.slice_lengths=[odd]", {"'search.slice_lengths[0]' is 'odd'", "even, time"}},
        {"calibrate llama.yaml",
         {"no measured run is given", "--run '53.7 s'"},
         2,
         "A calibration without a measured run",
         "`--run` takes the plan, or nothing for the plan of the config, and the time of its step."},
        {"calibrate llama.yaml --run 12", {"--run: '12' is no measured step", "53.7 s"}},
        {"calibrate llama.yaml --run parallel.tensr=2=1s",
         {"unknown key 'tensr'", "did you mean 'tensor'?", "the plan of run 'parallel.tensr=2'"}},
        {"calibrate llama.yaml --run '1 s' -o x.txt", {"'x.txt' is no name of a config", "-o x.yaml"}},
        {"calibrate gpt.yaml --run '1 s'",
         {"calibration is of transformers on clusters, not of model: gpt", "pipewright profile"}},
        {"simulate four.yaml --set calibration.computing=2",
         {"'calibration.computing' is for transformers, not for model: uniform", "remove the key"}},
        {"simulate four.yaml --set 'sweep={pipeline.split: even}'",
         {"'sweep.pipeline.split' must be a list", "write [even]"}},
        {"simulate four.yaml --set 'sweep={pipeline.micro_batches: [4, 4]}'",
         {"4 is listed twice in 'sweep.pipeline.micro_batches'", "write each value once"}},
        // values
        {"simulate four.yaml --set cluster.compute=989e12",
         {"a number without a unit", "such as 150 GFLOP/s"},
         2,
         "A number without its unit",
         "Sizes, times and rates have a unit: `16 GB`, `5 us`, `10 GB/s`, `989 TFLOP/s`."},
        {"run gpt.yaml --set workload.path=book.txt",
         {"'workload.path' names data, but the default, dataset: synthetic, has no files", "write dataset: text"}},
        {"run gpt.yaml --set workload.layers=8", {"here it is 'blocks'"}},
        {"simulate four.yaml --set 'cluster.link.bandwidth=100 Gb/s'",
         {"did you mean 100 GB/s or 100 Gbit/s?"},
         2,
         "A unit that may mean two things",
         "Write bytes with a capital B, and bits as `bit`."},
        {"simulate four.yaml --set cluster.link.bandwidth=0", {"is '0', and must be above 0", "such as 10 GB/s"}},
        {"simulate four.yaml --set 'pipeline.schedule=[1f1b, gpipe]'",
         {"'pipeline.schedule' is a list", "--set 'sweep={pipeline.schedule: [1f1b, gpipe]}'"},
         2,
         "Several values of one key",
         "Several values are a sweep; several schedules also `simulate --schedules 1f1b,gpipe`."},
        {"simulate four.yaml --set 'pipeline.micro_batches=[4, 8]'", {"sweep: {pipeline.micro_batches: [4, 8]}"}},
        {"simulate four.yaml --set 'sweep.pipeline.micro_batches=[4,8]'",
         {"the keys of 'sweep' are whole paths", "--set 'sweep={pipeline.micro_batches: [4, 8]}'"}},
        {"simulate four.yaml --set pipeline.schedule=zb",
         {"no schedule 'zb'", "did you mean zb-h1, zb-h2, zb1p, zb-v?"},
         2,
         "A schedule that is not there",
         "`pipewright list schedules` has all, with the names that other tools have for them."},
        {"simulate four.yaml --set pipeline.schedule=mine.py",
         {"'mine.py' is a program in Python", "pipewright.simulate(config, schedule=function)", "docs/python.md"}},
        {"simulate gpt.yaml --set pipeline.schedule=vocab-1",
         {"these stages have whole layers", "help: take a transformer on a cluster"},
         2,
         "A schedule that divides the vocabulary, with whole layers",
         "`vocab-1`, `vocab-2` and `vocab-interlaced` are for transformers on clusters and for `uniform`."},
        {"run four.yaml --set run.backend=emulated --set workload.stages=12 --set pipeline.schedule=vocab-1",
         {"schedule vocab-1 divides layers among devices, and runs compute whole layers", "simulate it"}},
        {"search gpt.yaml --set search.schedules=[vocab-2]",
         {"schedule vocab-2 divides the embedding and the head", "search with another schedule, such as 1f1b"}},
        {"plan four.yaml --set workload.stages=12 --set pipeline.schedule=vocab-1 -o x.csv",
         {"stages in PyTorch's format are a chain", "print the plan as text (--format text)"}},
        {"simulate four.yaml --set pipeline.schedule=vocab-1",
         {"schedule vocab-1 places three stages on each device", "12"}},
        {"simulate four.yaml --schedules gpipe,1fb1", {"no schedule '1fb1'", "did you mean '1f1b'?"}},
        {"simulate four.yaml --set pipeline.schedule=1f1b-interleaved", {"did you mean 1f1b, interleaved?"}},
        {"simulate gpt.yaml --set training.precision=bfloat16", {"did you mean 'bf16'?"}},
        {"run gpt.yaml --set training.optimizer=adamw-8bit",
         {"devices of cpu have no kernels of adamw-8bit", "set run.backend: emulated"},
         2,
         "An optimizer that no backend has",
         "Predictions and searches take every optimizer of the table. `run` trains by `sgd` and `adamw`."},
        {"run gpt.yaml --set training.gradient_type=bf16",
         {"--> training.gradient_type", "keep gradients and states in the layout of the weights", "remove the key"}},
        {"simulate gpt.yaml --set training.optimizer=muon",
         {"only transformers say which parameters are matrices", "write optimizer: adamw"}},
        {"simulate llama.yaml --set moe_token_dispatcher_type=flex", {"here it is 'parallel.expert_dispatcher'"}},
        {"simulate llama.yaml --set parallel.expert_tensor=2",
         {"--> parallel.expert_tensor", "has no experts", "remove the key"}},
        {"simulate llama.yaml --set 'cluster.dispatcher=per host'",
         {"'cluster.dispatcher' is 'per host', and every rank of 'llama-3.2-1b' has a process of its own",
          "cluster.dispatch adds to every task"}},
        {"simulate llama.yaml --set parallel.recompute=layernorm+mpl",
         {"'parallel.recompute' is 'layernorm+mpl'", "join some of none, selective",
          "mla_up_proj, mlp_act, moe_act, mlp"}},
        {"simulate llama.yaml --set parallel.recompute=layernorm+moe_act",
         {"has moe_act", "leave moe_act out"},
         2,
         "A module that no block has",
         "`parallel.recompute` names modules of the blocks. Words for several modules, such as `norms`, fit every "
         "model."},
        {"simulate llama.yaml --set 'parallel.recompute={kind: norms, group: 2}'",
         {"groups of blocks are recomputed as a whole", "write kind: full, or remove group"}},
        {"simulate llama.yaml --set 'parallel.recompute={kind: full, first: 2, every: 2}'",
         {"two rules that choose blocks", "write one of them"}},
        {"simulate llama.yaml --set 'parallel.recompute={kind: none, first: 2}'",
         {"chooses blocks and recomputes nothing", "write kind: full, or recompute: none"}},
        {"simulate llama.yaml --set 'parallel.recompute={kind: full, first: 0}'", {"at least 1"}},
        {"simulate gpt.yaml --set pipeline.recompute=full", {"did you mean 'all'?", "it can be: none, all"}},
        {"simulate gpt.yaml --set pipeline.recompute=True", {"did you mean 'all'?"}},
        {"simulate gpt.yaml --set training.shard_optimizer=True", {"write true"}},
        {"simulate gpt.yaml --set workload.model=meta-llama/Llama-3-8B", {"did you mean 'llama-3-8b'?"}},
        {"simulate gpt.yaml --set pipeline.micro_batches=1e9", {"'1e9'", "it is too large: at most 1000000"}},
        {"simulate gpt.yaml --set pipeline.micro_batches=99999999999999999999", {"it is too large: at most 1000000"}},
        {"simulate gpt.yaml --set training.seed=9223372036854775808", {"it is too large: at most 9223372036854775807"}},
        {"simulate gpt.yaml --set pipeline.micro_batches=1e2", {"write 100"}},
        {"simulate gpt.yaml --set pipeline.micro_batches=8.5", {"no whole number", "write digits only"}},
        {"simulate gpt.yaml --set workload.model=llama-3-70", {"unknown model", "did you mean 'llama-3-70b'?"}},
        // plans
        {"simulate four.yaml --set pipeline.schedule=zb-v",
         {"zb-v places two stages on each device", "set workload.stages to 8, or cluster.devices to 2"},
         2,
         "A schedule that needs another number of stages",
         "Change a number that the help names. `simulate --schedules all` shows which schedules fit as they "
         "are."},
        {"simulate four.yaml --set pipeline.replicas=2",
         {"pipeline.replicas=2", "--> pipeline.replicas\n", "cluster.devices to 8"}},
        {"simulate gpt.yaml --set 'pipeline.split=[x, y]'", {"no layer 'x'", "did you mean 'h'?", "split: auto"}},
        {"simulate gpt.yaml --set 'pipeline.split=[h.9]'",
         {"no layer 'h.9'", "there are h.0 to h.3"},
         2,
         "A cut at a layer that is not there",
         "Write the names of layers, or leave `pipeline.split` out."},
        {"simulate gpt.yaml --set 'pipeline.split=[transformer.h.2]'", {"did you mean 'h.2'?"}},
        {"search gpt.yaml --set 'search.stages=[100]'", {"100 stages for 45 layers", "write numbers up to 45"}},
        {"validate dead.csv",
         {"0B0 needs 0F0, which comes later", "dead.csv:1, cell 1", "move 0F0 before 0B0"},
         2,
         "A plan whose order is impossible",
         "Move the task that the help names. A deadlock of several devices is a list of tasks, each of which waits for "
         "the one below."},
        {"validate lower.csv", {"'0f0': types are written in capital letters", "write 0F0"}},
        {"search gpt.yaml --set 'cluster.memory=100 kB'",
         {"no plan", "needs", "has 100 kB", "raise cluster.memory"},
         3,
         "A model that does not fit",
         "Raise the memory or the number of devices, or let the search recompute and take smaller micro-batches."},
        {"run gpt.yaml --set 'cluster.memory=100 kB'",
         {"device 0 does not have the memory: 687.4 kB needed", "100 kB available"},
         3},
        // runs
        {"run gpt.yaml --checkpoint kept --set training.learning_rate=0.02 --set run.backend=reference",
         {"'kept' has checkpoints already", "add --resume kept, or name another folder"},
         2,
         "A folder with checkpoints of another training",
         "Continue that training by `--resume`, or name a new folder."},
        {"run gpt.yaml --checkpoint-every 5", {"--checkpoint-every needs a folder", "add --checkpoint DIR"}},
        {"launch -n 2 --launcher /bin/false gpt.yaml",
         {"'/bin/false' ended with exit code 1 before rank 0 had started", "try `/bin/false -n 2 hostname`"},
         1},
        // traces
        {"plot notes.json -o n.txt", {"name a trace that pipewright wrote"}},
        {"compare four.yaml gpt.yaml --max-error 5%", {"a prediction and a run of one plan", "trace simulate and run"}},
        {"compare a b c", {"3 files, and two are compared"}},
        // frozen layers
        {"simulate four.yaml --set workload.frozen=[0,1,2,3]",
         {"workload.frozen", "nothing is trained", "leave a stage out"}},
        {"simulate four.yaml --set workload.frozen=[4]", {"workload.frozen", "at most 3"}},
        {"simulate gpt.yaml --set workload.frozen=[block.0]",
         {"no layer is called 'block.0'", "name layers or their blocks"}},
        {"simulate gpt.yaml --set workload.frozen=[wte]", {"share their parameters, and only 'wte' is frozen"}},
        {"simulate four.yaml --set workload.frozen=[0] --set pipeline.schedule=pipedream",
         {"schedule pipedream never flushes", "are frozen", "such as 1f1b"}},
        {"run gpt.yaml --set 'workload.frozen=[wte, lm_head, wpe, h.0]' --set pipeline.slices=2 --set "
         "cluster.devices=2 "
         "--set pipeline.schedule=seq1f1b --set run.backend=reference",
         {"workload.frozen", "'h.0.attn.core' has no backward", "pipeline.slices: 1"}},
        {"simulate llama.yaml --set workload.frozen=[block.5-2]",
         {"the range 5-2 of 'block.5-2' is empty", "write the smaller number first"}},
        {"simulate llama.yaml --set workload.frozen=[block.14-16]", {"no layer of llama-3.2-1b is called 'block.16'"}},
        {"simulate gpt.yaml --set 'workload.lora={rank: 8}'",
         {"'workload.lora' is not for model: gpt", "it belongs to transformers"}},
    };
    return kMistakes;
}

class Mistakes : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("four.yaml", kFour);
        write("gpt.yaml", kGpt);
        write("layers.yaml", "layers: [{name: a, forward: 4 ms, backward: 8 ms}]\n");
        write("thousand.yaml",
              "workload: {model: uniform, stages: 1000}\ncluster: {devices: 1000}\n"
              "pipeline: {schedule: 1f1b, micro_batches: 1}\n");
        write("llama.yaml",
              "workload: {model: llama-3.2-1b, sequence_length: 2048}\ncluster: {devices: 2, device: h100-sxm-80}\n"
              "parallel: {pipeline: 2}\npipeline: {mini_batch: 4}\ntraining: {precision: bf16}\n");
        write("readme.md", "# Title\n\ntext: with: colons\n");
        write("longkey.yaml", std::string(5000, 'a') + ": 1\n");
        write("dead.csv", "0B0,0F0\n1F0,1B0\n");
        write("lower.csv", "0f0,0b0\n");
        write("notes.json", R"({"traceEvents": [{"ph": "X", "name": "kernel", "ts": 1, "dur": 1}]})");
        std::filesystem::create_directory(file("emptyfolder"));
        run_well("profile mlp.yaml -o profile.yaml --set run.backend=reference");
        run_well("run gpt.yaml --steps 2 --checkpoint kept --set run.backend=reference");
    }

    // The message, without notes before it.
    std::string message_of(const TypedMistake& mistake) const {
        const Said said = run(mistake.typed);
        EXPECT_EQ(said.code, mistake.code) << mistake.typed << '\n' << said.err;
        EXPECT_EQ(said.out, "") << mistake.typed;
        const std::size_t error = said.err.find("error: ");
        EXPECT_NE(error, std::string::npos) << mistake.typed << '\n' << said.err;
        return error == std::string::npos ? said.err : said.err.substr(error);
    }
};

// The message in an indented block, in lines of the page's width.
std::string indented(const std::string& text) {
    constexpr std::size_t kWidth = 116;
    std::istringstream lines(text);
    std::string made;
    for (std::string line; std::getline(lines, line);) {
        while (line.size() > kWidth) {
            const std::size_t space = line.rfind(' ', kWidth);
            made += "    " + line.substr(0, space) + '\n';
            line = std::string(6, ' ') + line.substr(space + 1);
        }
        made += "    " + line + '\n';
    }
    return made;
}

constexpr const char* kPagePath = PIPEWRIGHT_SOURCE_DIR "/docs/errors.md";

constexpr const char* kPageHead = R"(# Errors

Common mistakes: what is typed, what is printed, and what to do. A message says the fact, the place if the mistake is in a
file or in `--set`, and after `help:` the way out. The program prints this page's messages in its tests
(`tests/cli/test_mistakes.cpp`).

Exit codes: 2 for a mistake in the input, 3 for a plan that does not fit or deadlocks, 1 for a run that failed, 4 for a
failed check, 5 for a device or rank that became silent. A message that begins with "internal error" (1) is about a mistake
in pipewright: please report it. Errors go to stderr. `-q` removes notes and progress, but no error.

The configs of the examples are `four.yaml`

)";

}  // namespace

TEST_F(Mistakes, HaveMessagesWithAWayOut) {
    std::string page = kPageHead + indented(kFour) + "\nand `gpt.yaml`\n\n" + indented(kGpt);
    for (const TypedMistake& mistake : typed_mistakes()) {
        const std::string message = message_of(mistake);
        for (const std::string& part : mistake.said)
            EXPECT_TRUE(contains(message, part)) << mistake.typed << "\nno '" << part << "' in\n" << message;
        EXPECT_TRUE(contains(message, "\n  help: ") || contains(message, "excludes")) << mistake.typed << '\n'
                                                                                      << message;
        if (mistake.title != nullptr)
            page += fmt::format("\n## {}\n\n<!-- run: not, the tests do -->\n    $ pipewright {}\n{}\n{}\n",
                                mistake.title, mistake.typed, indented(message), mistake.advice);
    }
    if (std::getenv("PIPEWRIGHT_RECORD") != nullptr)
        std::ofstream(kPagePath) << page;
    std::ostringstream written;
    written << std::ifstream(kPagePath).rdbuf();
    EXPECT_EQ(page, written.str());
}

}  // namespace pw
