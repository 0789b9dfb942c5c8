#include "exec/checkpoint/checkpoint_writer.h"

namespace pw {

CheckpointWriter::~CheckpointWriter() {
    if (thread_.joinable())
        thread_.join();
}

void CheckpointWriter::wait() {
    if (thread_.joinable())
        thread_.join();
    if (cause_)
        std::rethrow_exception(std::exchange(cause_, nullptr));
}

void CheckpointWriter::write(std::function<Checkpoint()> make) {
    wait();
    is_idle_ = false;
    thread_ = start_thread("a checkpoint", [this, make = std::move(make)] {
        lower_priority();
        try {
            write_it(make());
        } catch (...) {
            cause_ = std::current_exception();
        }
        is_idle_ = true;
    });
}

void CheckpointWriter::write_it(Checkpoint checkpoint) {
    const int step = checkpoint.step;
    if (!lost_.last.empty())
        lost_.earlier.push_back(std::exchange(lost_.last, {}));
    try {
        folder_->write(std::move(checkpoint));
    } catch (const std::exception& error) {
        lost_.last = fmt::format("no checkpoint of step {}: {}", step, error.what());
    }
}

LostCheckpoints CheckpointWriter::finish() {
    wait();
    return std::exchange(lost_, {});
}

}  // namespace pw
