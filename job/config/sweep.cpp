// The block `sweep`: keys and their values.
#include "job/config/blocks.h"
#include "job/config/given.h"

#include <set>
#include <string>

namespace pw {
namespace {

// `sweep.pipeline.micro_batches` is not a key: the keys of a sweep are whole paths.
void refuse_map(std::string key, Yaml values) {
    const Yaml at = values;
    while (values.is_map() && !values.entries().empty()) {
        const auto first = values.entries().front();
        key += "." + first.first;
        values = first.second;
    }
    at.complain(fmt::format("'{}' has keys, not values: the keys of 'sweep' are whole paths", at.path()),
                fmt::format("write sweep: {{{0}: {1}}}, or --set 'sweep={{{0}: {1}}}'", key,
                            values.is_list() ? flow_text(values) : "[first, second]"));
}

}  // namespace

bool refuse_several(const Yaml& at, std::string_view why) {
    if (!at.is_list())
        return false;
    at.complain(fmt::format("'{}' is a list{}{}", at.path(), why.empty() ? "" : ", but ", why),
                fmt::format("write one value; several of them are a sweep: sweep: {{{0}: {1}}}, or --set 'sweep={{{0}: "
                            "{1}}}'",
                            at.path(), flow_text(at)));
    return true;
}

std::vector<SweepAxis> read_sweep(const Yaml& sweep) {
    std::vector<SweepAxis> axes;
    for (const auto& [key, values] : sweep.entries()) {
        SweepAxis& axis = axes.emplace_back();
        axis.key = key;
        if (key.empty() || key.find('=') != std::string::npos)
            values.complain(fmt::format("'{}' in 'sweep' is not the path of a key", key),
                            "write it as pipeline.micro_batches");
        if (values.is_map()) {
            refuse_map(key, values);
            continue;
        }
        if (key == "pipeline.schedule" && values.is_text() && values.text() == kAllSchedules) {
            axis.texts = {std::string(kAllSchedules)};
            continue;
        }
        std::set<std::string> different;
        for (const Yaml& value : values.items()) {
            axis.texts.push_back(flow_text(value));
            if (!different.insert(axis.texts.back()).second)
                value.complain(fmt::format("{} is listed twice in '{}'", axis.texts.back(), values.path()),
                               "write each value once");
        }
        if (values.is_list() && axis.texts.empty())
            values.complain(fmt::format("'{}' has no values", values.path()),
                            "list at least one, such as [2, 4, 8], or remove the key");
    }
    return axes;
}

}  // namespace pw
