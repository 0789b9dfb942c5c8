#include "viz/page/columns.h"

#include "workloads/text/gzip.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string_view>

namespace pw {

nlohmann::ordered_json Columns::add(const std::vector<std::int64_t>& values) {
    nlohmann::ordered_json column = {{"count", values.size()}};
    if (std::all_of(values.begin(), values.end(), [&](std::int64_t value) { return value == values.front(); })) {
        column["same"] = values.empty() ? 0 : values.front();
        return column;
    }
    const std::size_t begin = bytes_.size();
    std::int64_t before = 0;
    for (const std::int64_t value : values) {
        const std::int64_t difference = value - before;
        before = value;
        std::uint64_t rest =
            (static_cast<std::uint64_t>(difference) << 1) ^ static_cast<std::uint64_t>(difference >> 63);
        for (; rest > 0x7f; rest >>= 7)
            bytes_.push_back(static_cast<char>((rest & 0x7f) | 0x80));
        bytes_.push_back(static_cast<char>(rest));
    }
    column["bytes"] = bytes_.size() - begin;
    return column;
}

std::string Columns::text() const {
    std::string compressed;
    GzipWriter gzip([&](std::string_view bytes) { compressed += bytes; });
    gzip.write(bytes_);
    gzip.finish();
    return base64(compressed);
}

std::string base64(const std::string& bytes) {
    constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    text.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
        const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
        std::uint32_t three = 0;
        for (std::size_t k = 0; k < 3; ++k)
            three = three << 8 | (k < count ? static_cast<unsigned char>(bytes[at + k]) : 0);
        for (std::size_t k = 0; k < 4; ++k)
            text += k <= count ? kLetters[three >> (18 - 6 * k) & 63] : '=';
    }
    return text;
}

}  // namespace pw
