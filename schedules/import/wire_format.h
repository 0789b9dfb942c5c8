// The wire format of protocol buffers, as far as readers of traces need it: fields with a number, and a whole number or
// bytes (https://protobuf.dev/programming-guides/encoding/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pw {

struct WireField {
    enum class Kind { Number, Text, Fixed } kind;
    std::uint64_t field;     // its number in the schema
    std::uint64_t value;     // of a Number
    std::string_view bytes;  // of a Text: a text, or a message
};

// Reads a message field by field. What it returns refers to the message. Nothing is returned where the bytes are not of
// the format, or end before the field does.
class WireReader {
public:
    explicit WireReader(std::string_view message) : rest_(message), size_(message.size()) {}

    bool at_end() const { return rest_.empty(); }
    std::size_t at() const { return size_ - rest_.size(); }  // bytes that have been read

    std::optional<std::uint64_t> number() {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
            const auto byte = static_cast<unsigned char>(rest_.front());
            rest_.remove_prefix(1);
            if (shift == 63 && byte > 1)  // more than 64 bits
                return {};
            value |= std::uint64_t{byte & 0x7fU} << shift;
            if (byte < 0x80)
                return value;
        }
        return {};
    }

    // A length, and as many bytes.
    std::optional<std::string_view> bytes() {
        const std::optional<std::uint64_t> length = number();
        return length ? take(*length) : std::nullopt;
    }

    std::optional<WireField> field() {
        constexpr std::uint64_t kEight = 1, kBytes = 2, kFour = 5;
        const std::optional<std::uint64_t> tag = number();
        if (!tag || *tag >> 3 == 0)
            return {};
        WireField field{WireField::Kind::Number, *tag >> 3, 0, {}};
        std::optional<std::string_view> content;
        switch (const std::uint64_t type = *tag & 7) {
            case 0:
                if (const std::optional<std::uint64_t> value = number()) {
                    field.value = *value;
                    return field;
                }
                return {};
            case kBytes:
                field.kind = WireField::Kind::Text;
                content = bytes();
                break;
            case kEight:
            case kFour:
                field.kind = WireField::Kind::Fixed;
                content = take(type == kEight ? 8 : 4);
                break;
            default:  // groups, which no schema of today has
                return {};
        }
        if (!content)
            return {};
        field.bytes = *content;
        return field;
    }

private:
    std::optional<std::string_view> take(std::uint64_t length) {
        if (length > rest_.size())
            return {};
        const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(length));
        rest_.remove_prefix(taken.size());
        return taken;
    }

    std::string_view rest_;
    std::size_t size_;
};

}  // namespace pw
