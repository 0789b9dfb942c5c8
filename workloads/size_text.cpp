#include "workloads/size_text.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

namespace pw {

std::string print_bytes_as(Bytes size, Bytes limit) {
    constexpr std::pair<const char*, double> kThousands[] = {{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}};
    const std::string written = exact_bytes(limit);
    if (limit == std::numeric_limits<Bytes>::max() || written.ends_with("iB") || size < 1000)
        return print_bytes(size);
    for (const auto& [unit, bytes] : kThousands)
        if (static_cast<double>(size) >= 0.9995 * bytes)
            return fmt::format("{:.4g} {}", static_cast<double>(size) / bytes, unit);
    return print_bytes(size);
}

}  // namespace pw
