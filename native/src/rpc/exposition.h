// Writes Prometheus' text format, version 0.0.4.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dgr {

using Labels = std::vector<std::pair<std::string, std::string>>;

class Exposition {
public:
    static constexpr const char * CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";

    // What the samples that follow belong to; each name once. `type`: counter, gauge or histogram.
    void family(const std::string & name, const char * type, const std::string & help);

    // Of the family; `suffix` as a histogram has them: _bucket, _sum, _count.
    void sample(const Labels & labels, const std::string & value, const char * suffix = "");
    void sample(const Labels & labels, uint64_t value, const char * suffix = "") { sample(labels, std::to_string(value), suffix); }

    // A family of one sample without labels.
    void single(const std::string & name, const char * type, const std::string & help, const std::string & value);
    void single(const std::string & name, const char * type, const std::string & help, uint64_t value) {
        single(name, type, help, std::to_string(value));
    }

    const std::string & text() const { return text_; }

private:
    std::string text_;
    std::string name_;
};

// Microseconds as seconds, exactly: 0.00025, 1, 60.
std::string as_seconds(uint64_t us);

}  // namespace dgr
