// Calls of CUDA and its libraries that must succeed: every one of them has 0 for that.
#pragma once

#include <gtest/gtest.h>

#define ASSERT_OK(call) ASSERT_EQ(static_cast<int>(call), 0)
#define EXPECT_OK(call) EXPECT_EQ(static_cast<int>(call), 0)
