// Acts with a stack 32 times smaller than the usual one: a function that recurses once per element of its input
// overflows it with inputs of some thousands, as it would overflow the usual one with 1e5.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>

#include <pthread.h>

namespace pw {

inline void on_small_stack(const std::function<void()>& act) {
    constexpr std::size_t kStack = 256 << 10;
    struct Call {
        const std::function<void()>& act;
        std::exception_ptr thrown;
    } call{act, nullptr};
    pthread_attr_t attributes;
    pthread_t thread;
    ASSERT_EQ(pthread_attr_init(&attributes), 0);
    ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStack), 0);
    const auto enter = [](void* argument) -> void* {
        Call& own = *static_cast<Call*>(argument);
        try {
            own.act();
        } catch (...) {
            own.thrown = std::current_exception();
        }
        return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, &attributes, enter, &call), 0);
    ASSERT_EQ(pthread_join(thread, nullptr), 0);
    pthread_attr_destroy(&attributes);
    if (call.thrown)
        std::rethrow_exception(call.thrown);
}

}  // namespace pw
