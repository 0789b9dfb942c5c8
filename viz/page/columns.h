// Columns of whole numbers for pages: the differences of neighbours in few bytes, compressed, as text.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace pw {

// A difference d is the number 2d, or -2d-1 if it is negative, in bytes of seven bits, the lowest first; all bytes of a
// number but the last have the highest bit set. A column whose values are all equal has no bytes.
class Columns {
public:
    // Returns how a page finds the values again: {"count", "bytes"}, or {"count", "same"}.
    nlohmann::ordered_json add(const std::vector<std::int64_t>& values);
    // Returns all columns, compressed with gzip, in base64.
    std::string text() const;

private:
    std::string bytes_;
};

std::string base64(const std::string& bytes);

}  // namespace pw
