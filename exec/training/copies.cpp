// Merges the tensors of several devices: each name once.
#include "exec/training/training.h"
#include "workloads/error.h"

#include <bit>
#include <cstring>
#include <map>
#include <utility>

namespace pw {

namespace {

// Calls agrees(first, other) for each further tensor of a name. It may copy values of `other` into `first`.
template <class Agrees>
std::vector<NamedTensor> each_once(std::vector<std::vector<NamedTensor>> by_device, Agrees agrees) {
    std::map<std::string, NamedTensor> by_name;
    for (std::vector<NamedTensor>& tensors : by_device)
        for (NamedTensor& tensor : tensors) {
            const std::string name = tensor.name;
            const auto [first, is_new] = by_name.try_emplace(name, std::move(tensor));
            if (!is_new &&
                (first->second.values.size() != tensor.values.size() || !agrees(first->second.values, tensor.values)))
                fail_with(ExitCode::RunFailed, "the copies of {} differ", name);
        }
    std::vector<NamedTensor> all;
    for (auto& [name, tensor] : by_name)
        all.push_back(std::move(tensor));
    return all;
}

}  // namespace

std::vector<NamedTensor> without_copies(std::vector<std::vector<NamedTensor>> by_device) {
    return each_once(std::move(by_device), [](const std::vector<float>& first, const std::vector<float>& other) {
        return std::memcmp(first.data(), other.data(), first.size() * sizeof(float)) == 0;
    });
}

// The bits of a zero are all zero, so that OR with it does not change the other value, not even a minus zero.
std::vector<NamedTensor> joined_parts(std::vector<std::vector<NamedTensor>> by_device) {
    return each_once(std::move(by_device), [](std::vector<float>& first, const std::vector<float>& other) {
        for (std::size_t k = 0; k < first.size(); ++k) {
            const auto one = std::bit_cast<std::uint32_t>(first[k]), two = std::bit_cast<std::uint32_t>(other[k]);
            if (one != 0 && two != 0 && one != two)
                return false;
            first[k] = std::bit_cast<float>(one | two);
        }
        return true;
    });
}

}  // namespace pw
