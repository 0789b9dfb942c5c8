#include "exec/cpu/onednn.h"

#include "exec/cpu/layers.h"
#include "workloads/error.h"

#include <algorithm>
#include <new>

namespace pw::cpu {

namespace {

dnnl::stream& stream() {
    thread_local dnnl::stream mine(engine());
    return mine;
}

}  // namespace

void fail_for(const dnnl::error& error, const std::string& layer, std::string_view what) {
    if (error.status == dnnl_out_of_memory)
        throw std::bad_alloc();
    fail_with(ExitCode::RunFailed, "layer '{}': oneDNN {}: status {}: {}", layer, what, static_cast<int>(error.status),
              error.what());
}

const dnnl::engine& engine() {
    static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
    return cpu;
}

dnnl::primitive_attr user_scratchpad() {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attributes;
}

Call::Call(std::string layer, const dnnl::primitive_desc_base& desc, std::initializer_list<int> arguments)
    : made_(true), layer_(std::move(layer)), primitive_(desc.get()) {
    for (int argument : arguments)
        memory_.push_back(
            {argument, dnnl::memory(desc.query_md(dnnl::query::exec_arg_md, argument), engine(), nullptr)});
    const dnnl::memory::desc scratch = desc.query_md(dnnl::query::exec_arg_md, DNNL_ARG_SCRATCHPAD);
    scratch_ = aligned(static_cast<Bytes>(scratch.get_size()));
    memory_.push_back({DNNL_ARG_SCRATCHPAD, dnnl::memory(scratch, engine(), nullptr)});
    for (const Argument& each : memory_)
        given_.push_back({each.number, each.memory.get()});
}

void Call::operator()(std::initializer_list<std::pair<int, const void*>> arguments, std::byte* scratch) {
    try {
        for (const auto& [argument, data] : arguments)
            memory_of(argument).set_data_handle(const_cast<void*>(data));
        memory_of(DNNL_ARG_SCRATCHPAD).set_data_handle(scratch);
        dnnl::error::wrap_c_api(
            dnnl_primitive_execute(primitive_.get(), stream().get(), static_cast<int>(given_.size()), given_.data()),
            "could not execute a primitive");
    } catch (const dnnl::error& error) {
        fail_for(error, layer_, "failed");
    }
}

dnnl::memory& Call::memory_of(int argument) { return std::ranges::find(memory_, argument, &Argument::number)->memory; }

Call make_reorder(const std::string& layer, const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
    const dnnl::reorder::primitive_desc desc(engine(), from, engine(), to, user_scratchpad());
    return Call(layer, desc, {DNNL_ARG_FROM, DNNL_ARG_TO});
}

}  // namespace pw::cpu
