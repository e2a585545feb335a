#include "log/event.h"

#include <array>
#include <cstdio>

namespace dgr {

// Bytes of the character that starts at `at`, 0 where none does. Surrogates and overlong forms are none.
static size_t utf8_length(std::string_view text, size_t at) {
    const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
    const auto tail = [&](size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
    const unsigned first = byte(at), second = byte(at + 1);
    if (first < 0x80) {
        return 1;
    }
    if (first >= 0xc2 && first < 0xe0) {
        return tail(at + 1) ? 2 : 0;
    }
    if (first >= 0xe0 && first < 0xf0) {
        const bool legal = !(first == 0xe0 && second < 0xa0) && !(first == 0xed && second >= 0xa0);
        return legal && tail(at + 1) && tail(at + 2) ? 3 : 0;
    }
    if (first >= 0xf0 && first < 0xf5) {
        const bool legal = !(first == 0xf0 && second < 0x90) && !(first == 0xf4 && second >= 0x90);
        return legal && tail(at + 1) && tail(at + 2) && tail(at + 3) ? 4 : 0;
    }
    return 0;
}

static std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (size_t at = 0; at < text.size();) {
        const size_t length = utf8_length(text, at);
        const auto byte = static_cast<unsigned char>(text[at]);
        if (length == 0) {
            out += "\\ufffd";
        } else if (length == 1 && (byte < 0x20 || byte == 0x7f)) {
            std::array<char, 8> escape{};
            std::snprintf(escape.data(), escape.size(), "\\u%04x", byte);
            out += escape.data();
        } else {
            out += byte == '"' || byte == '\\' ? "\\" : "";
            out += text.substr(at, length);
        }
        at += length == 0 ? 1 : length;
    }
    return out + "\"";
}

static std::string shown(const Field & field) {
    return field.value.size() <= MAX_FIELD_BYTES ? field.value : field.value.substr(0, MAX_FIELD_BYTES) + "...";
}

// Plain words need no quotes.
static bool is_plain(std::string_view text) {
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte <= 0x20 || byte >= 0x7f || c == '"' || c == '\\' || c == '=') {
            return false;
        }
    }
    return !text.empty();
}

std::string to_text(std::string_view event, const Fields & fields) {
    std::string line(event);
    for (const Field & field : fields) {
        const std::string value = shown(field);
        line += " " + field.name + "=" + (is_plain(value) ? value : quoted(value));
    }
    return line;
}

std::string to_json_members(std::string_view event, const Fields & fields) {
    std::string line = "\"event\":" + quoted(event);
    for (const Field & field : fields) {
        line += "," + quoted(field.name) + ":" + (field.is_text ? quoted(shown(field)) : field.value);
    }
    return line;
}

}  // namespace dgr
