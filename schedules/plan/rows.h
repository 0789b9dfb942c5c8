// Rows of integers of different lengths, in one block of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pw {

// A row is closed before the next one begins. The total is fewer than 2^32 items (kMostInputs).
class Rows {
public:
    Rows() = default;
    // Makes rows of these sizes, to be filled through item().
    explicit Rows(const std::vector<int>& sizes) {
        first_.reserve(sizes.size() + 1);
        for (const int size : sizes)
            first_.push_back(first_.back() + static_cast<std::uint32_t>(size));
        items_.resize(first_.back());
    }
    int& item(std::size_t row, int at) { return items_[first_[row] + static_cast<std::size_t>(at)]; }

    void reserve(std::size_t rows, std::size_t items) {
        first_.reserve(rows + 1);
        items_.reserve(items);
    }
    void push(int item) { items_.push_back(item); }
    void push(std::span<const int> items) {  // mostly few; insert() is slower
        for (const int item : items)
            items_.push_back(item);
    }
    void close() { first_.push_back(static_cast<std::uint32_t>(items_.size())); }

    std::span<const int> operator[](std::size_t row) const {
        return {items_.data() + first_[row], items_.data() + first_[row + 1]};
    }
    // the index of its first item in all()
    int first(std::size_t row) const { return static_cast<int>(first_[row]); }
    std::span<const int> all() const { return items_; }
    int items() const { return static_cast<int>(items_.size()); }

private:
    std::vector<std::uint32_t> first_{0};
    std::vector<int> items_;
};

}  // namespace pw
