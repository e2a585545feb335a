// What an event says, as a line for people or for programs. A line stays one line, and short, whatever a client sent.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace dgr {

// A named value: text, a number, or true and false.
struct Field {
    Field(std::string field_name, std::string text) : name(std::move(field_name)), value(std::move(text)) {}
    Field(std::string field_name, std::string_view text) : Field(std::move(field_name), std::string(text)) {}
    Field(std::string field_name, const char * text) : Field(std::move(field_name), std::string(text)) {}
    Field(std::string field_name, bool truth) : name(std::move(field_name)), value(truth ? "true" : "false"), is_text(false) {}

    template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number> && !std::is_same_v<Number, bool>>>
    Field(std::string field_name, Number number) : name(std::move(field_name)), value(std::to_string(number)), is_text(false) {}

    std::string name;
    std::string value;
    bool        is_text = true;
};

using Fields = std::vector<Field>;

// Longer values are cut.
constexpr size_t MAX_FIELD_BYTES = 512;

// listening address=127.0.0.1:7001 tls=false
std::string to_text(std::string_view event, const Fields & fields);

// "event":"listening","address":"127.0.0.1:7001","tls":false
// The members of a JSON object without its braces. Bytes that are no UTF-8 become U+FFFD.
std::string to_json_members(std::string_view event, const Fields & fields);

}  // namespace dgr
