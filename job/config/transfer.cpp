// The block `transfer`.
#include "job/config/blocks.h"

namespace pw {
namespace {

using Mode = TransferMode;
constexpr auto kTransfer = &Config::transfer;

constexpr ConfigKey kTransferKeys[] = {
    {"communicator", choice_key<kTransfer, &Mode::communicator>(), KeyShown::Always, "",
     "`edge`: a lane per directed pair of devices and direction, `direction`: a lane per device for activations and "
     "a lane for gradients, `one`: a single lane per device. Lanes keep their order, and `plan --format csv-comms` "
     "uses `one` if the config does not have the key"},
    {"receive", choice_key<kTransfer, &Mode::receive>(), KeyShown::Always, "",
     "`early`: as soon as the lane allows, `deferred`: just before the consumer"},
    {"protocol", choice_key<kTransfer, &Mode::protocol>(), KeyShown::Always, "",
     "`eager`: a send does not wait for its receive. `rendezvous`: a transfer starts when both ends have reached it"},
    {"eager_limit", size_key<kTransfer, &Mode::eager_limit>(), KeyShown::IfSet, "",
     "with `protocol: rendezvous`: messages of at most this many bytes leave at once, as MPI sends them (Open MPI's "
     "`btl_tcp_eager_limit`, MPICH's `UCX_RNDV_THRESH`). The limit has no effect in runs with deferred receives, "
     "which take a message only when the receive is posted"},
    {"exchange", choice_key<kTransfer, &Mode::exchange>(), KeyShown::IfSet, "",
     "`overlapped`: a task waits for what it reads. `blocking`: a task waits for all sends and receives ahead of it "
     "in its list, as in Megatron-LM's batches ([what it costs](schedules.md#exchanges))"},
    {"copies", choice_key<kTransfer, &Mode::copies>(), KeyShown::IfSet, "",
     "with `pipeline.offload` or `offload_states`: `in turn`: a device copies to and from its host one tensor at a "
     "time, in the order of its list. `both ways`: a copy to the host and a copy back run at the same time, each at "
     "the bandwidth of the link"},
    {"sums", choice_key<&Config::sums>(), KeyShown::IfSet, "",
     "how replicas sum gradients ([schedules.md](schedules.md#replicas)). A run on devices that compute needs `ring` "
     "and sums by its own means, and emulated devices sleep the closed form"},
    {"multiprocessors", number_key<&Config::mover_share>(0, 0.5), KeyShown::IfSet, "",
     "the share of a GPU that the kernels of a message take on both devices while the message travels, and the "
     "kernels of a sum of gradients on each device of the sum. NCCL takes a multiprocessor per channel "
     "(`NCCL_MAX_CTAS`): 8 of 132 are 0.06. Several messages and sums at once take this share each, at most nine "
     "tenths together, and tasks that compute meanwhile get the rest. For `simulate`, `search` and predictions of "
     "cuda runs (a cuda run shares its GPU anyway)"},
    {"sum_bucket", size_key<&Config::sum_bucket>(), KeyShown::IfSet, "all of a stage at once",
     "gradients are summed in equal buckets of at most this size, everywhere but on `cuda` (a stage has at most 4096 "
     "buckets: a note says where buckets are larger). Each bucket is summed as soon as it is full, while the "
     "backward fills the next buckets ([schedules.md](schedules.md#replicas)), and PyTorch's DDP has 25 MiB"},
};

void finish_transfer(const Yaml& at, Config& config, KeyReading&) {
    if (config.transfer.eager_limit > 0 && config.transfer.protocol == TransferMode::Protocol::Eager)
        at["eager_limit"].complain("with protocol: eager every message leaves at once, whatever its size",
                                   "write protocol: rendezvous, or remove the key");
}

}  // namespace

ConfigBlock transfer_block() { return {"transfer", kTransferKeys, finish_transfer}; }

}  // namespace pw
