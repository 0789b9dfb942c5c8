// Error messages for malformed input.
#pragma once

#include "workloads/error.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace pw {

// Returns the message of the Error that `use` must throw.
template <class Use>
std::string refusal(Use use, ExitCode code = ExitCode::BadInput) {
    try {
        use();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), code);
        return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
}

inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

inline void expect_says(const std::string& message, const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
        EXPECT_TRUE(contains(message, part)) << "'" << part << "' is not in: " << message;
}

}  // namespace pw
