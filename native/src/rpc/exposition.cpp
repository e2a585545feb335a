#include "rpc/exposition.h"

#include <array>
#include <cstdio>

namespace dgr {

std::string as_seconds(uint64_t us) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%llu.%06llu", static_cast<unsigned long long>(us / 1000000),
        static_cast<unsigned long long>(us % 1000000));
    std::string seconds = text.data();
    seconds.erase(seconds.find_last_not_of('0') + 1);
    return seconds.back() == '.' ? seconds.substr(0, seconds.size() - 1) : seconds;
}

// Backslash, line end and, in label values, the quote are all that the format escapes.
static std::string escaped(const std::string & text, bool is_label) {
    std::string out;
    for (const char c : text) {
        if (c == '\n') {
            out += "\\n";
        } else {
            out += c == '\\' || (is_label && c == '"') ? "\\" : "";
            out += c;
        }
    }
    return out;
}

void Exposition::family(const std::string & name, const char * type, const std::string & help) {
    name_ = name;
    text_ += "# HELP " + name + " " + escaped(help, false) + "\n# TYPE " + name + " " + type + "\n";
}

void Exposition::sample(const Labels & labels, const std::string & value, const char * suffix) {
    text_ += name_ + suffix;
    for (size_t i = 0; i < labels.size(); ++i) {
        text_ += (i == 0 ? "{" : ",") + labels[i].first + "=\"" + escaped(labels[i].second, true) + "\"";
    }
    text_ += (labels.empty() ? " " : "} ") + value + "\n";
}

void Exposition::single(const std::string & name, const char * type, const std::string & help, const std::string & value) {
    family(name, type, help);
    sample({}, value);
}

}  // namespace dgr
