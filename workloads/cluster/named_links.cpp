#include "workloads/cluster/named_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace pw {

const NamedLink* find_named_link(std::string_view name) {
    const auto found = std::find_if(std::begin(kNamedLinks), std::end(kNamedLinks),
                                    [&](const NamedLink& one) { return one.name == name; });
    return found == std::end(kNamedLinks) ? nullptr : &*found;
}

std::string names_of_links() {
    std::string names;
    for (const NamedLink& one : kNamedLinks)
        names += fmt::format("{}{}", names.empty() ? "" : ", ", one.name);
    return names;
}

}  // namespace pw
