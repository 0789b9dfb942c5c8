// oneDNN primitives: all parameters except the addresses are fixed when they are made.
#pragma once

#include "workloads/units.h"

#include <oneapi/dnnl/dnnl.hpp>

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw::cpu {

const dnnl::engine& engine();
dnnl::primitive_attr user_scratchpad();

// Reports a failure of oneDNN: throws std::bad_alloc for lack of memory, otherwise Error (RunFailed) with the layer.
[[noreturn]] void fail_for(const dnnl::error& error, const std::string& layer, std::string_view what);

// One primitive and its arguments. A failure throws Error with the name of the layer.
class Call {
public:
    Call() = default;
    // `arguments` are DNNL_ARG_..., without the scratchpad.
    Call(std::string layer, const dnnl::primitive_desc_base& desc, std::initializer_list<int> arguments);

    explicit operator bool() const { return made_; }
    Bytes scratch() const { return scratch_; }  // a multiple of 64
    void operator()(std::initializer_list<std::pair<int, const void*>> arguments, std::byte* scratch);

private:
    bool made_ = false;
    std::string layer_;
    dnnl::primitive primitive_;
    struct Argument {
        int number;
        dnnl::memory memory;
    };
    dnnl::memory& memory_of(int argument);
    std::vector<Argument> memory_;
    std::vector<dnnl_exec_arg_t> given_;  // the same in the format of oneDNN
    Bytes scratch_ = 0;
};

Call make_reorder(const std::string& layer, const dnnl::memory::desc& from, const dnnl::memory::desc& to);

}  // namespace pw::cpu
