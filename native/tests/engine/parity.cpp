#include "parity.h"

#include "devices.h"
#include "finite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>

namespace dgr::testing {

namespace {

std::string from_environment(const char * name) {
    const char * value = std::getenv(name);
    if (value == nullptr || *value == '\0') {
        throw std::runtime_error(std::string(name) + " must name a tiny model (dgr-build model tiny)");
    }
    return value;
}

}  // namespace

std::string tiny_v4() {
    return from_environment("DGR_TINY_V4");
}

std::string tiny_llama() {
    return from_environment("DGR_TINY_LLAMA");
}

std::string tiny_qwen3() {
    return from_environment("DGR_TINY_QWEN3");
}

std::string tiny_gemma3() {
    return from_environment("DGR_TINY_GEMMA3");
}

LlamaEngineParams default_params(const std::string & model) {
    LlamaEngineParams params;
    params.model_path   = model;
    params.slot_classes = { { 1, 512 } };
    params.n_ubatch     = 64;
    return params;
}

bool on_cpu() {
    return is_cpu(find_device("auto"));
}

std::vector<int32_t> make_prompt(size_t n, uint32_t seed) {
    std::vector<int32_t> ids(n);
    uint32_t             state = seed * 2654435761U + 12345U;
    for (int32_t & id : ids) {
        state = state * 1664525U + 1013904223U;
        id    = 3 + static_cast<int32_t>((state >> 16) % 256);  // the byte tokens
    }
    return ids;
}

Chain::Chain(const LlamaEngineParams & params, const std::vector<uint32_t> & cuts) {
    std::vector<uint32_t> bounds = { 0 };
    bounds.insert(bounds.end(), cuts.begin(), cuts.end());
    bounds.push_back(0);  // the end
    for (size_t i = 0; i + 1 < bounds.size(); i++) {
        LlamaEngineParams own = params;
        own.range             = { bounds[i], bounds[i + 1] };
        stages.push_back(make_llama_engine(own));
    }
}

Chain::Session::Session(Chain & session_chain, uint32_t n_ctx) : chain(session_chain) {
    for (auto & stage : chain.stages) {
        const int32_t slot = stage->open(n_ctx);
        if (slot < 0) {
            throw std::runtime_error("no free slot");
        }
        stage_slots.push_back(slot);
    }
}

Chain::Session::~Session() {
    for (size_t i = 0; i < stage_slots.size(); i++) {
        chain.stages[i]->close(static_cast<uint32_t>(stage_slots[i]));
    }
}

EngineOutput Chain::Session::execute(const std::vector<int32_t> & ids) {
    EngineFrame frame;
    frame.first_position = position;
    frame.n_rows         = static_cast<uint32_t>(ids.size());
    frame.token_ids      = ids.data();

    EngineOutput output;
    for (size_t i = 0; i < chain.stages.size(); i++) {
        const bool is_tail = i + 1 == chain.stages.size();
        frame.slot         = static_cast<uint32_t>(stage_slots[i]);
        frame.boundary     = output.boundary;
        frame.want_token   = is_tail;
        frame.want_logits  = is_tail ? LogitsWanted::all : LogitsWanted::none;
        output             = chain.stages[i]->execute(frame);
    }
    position += frame.n_rows;
    return output;
}

Trace Chain::Session::generate(const std::vector<int32_t> & prompt, int n_decode) {
    Trace      trace;
    const auto keep = [&](const EngineOutput & output) {
        trace.logits.insert(trace.logits.end(), output.logits.begin(), output.logits.end());
        return output.token;
    };

    const size_t n_ubatch = chain.stages[0]->describe().numerics.n_ubatch;
    int32_t      token    = -1;
    for (size_t first = 0; first < prompt.size(); first += n_ubatch) {
        const size_t end = std::min(first + n_ubatch, prompt.size());
        token            = keep(execute({ prompt.data() + first, prompt.data() + end }));
    }
    trace.tokens.push_back(token);
    for (int step = 0; step < n_decode; step++) {
        token = keep(execute({ token }));
        trace.tokens.push_back(token);
    }
    return trace;
}

Trace Chain::generate(const std::vector<int32_t> & prompt, int n_decode) {
    Session session(*this, static_cast<uint32_t>(prompt.size()) + static_cast<uint32_t>(n_decode));
    return session.generate(prompt, n_decode);
}

const Trace & solo_trace(const LlamaEngineParams & params, const std::vector<uint32_t> & cuts,
                         const std::vector<int32_t> & prompt, int n_decode) {
    static std::map<std::string, Trace> known;

    std::string key = params.model_path + "|" + std::to_string(params.n_ubatch) + "|" +
                      std::to_string(params.n_threads) + std::to_string(params.flash_attn) + params.type_k + "|" +
                      std::to_string(params.slot_classes[0].n_ctx) + "|" + std::to_string(n_decode);
    for (const uint32_t cut : cuts) {
        key += "/" + std::to_string(cut);
    }
    for (const int32_t id : prompt) {
        key += "," + std::to_string(id);
    }
    const auto found = known.find(key);
    if (found != known.end()) {
        return found->second;
    }
    Trace trace = Chain(params, cuts).generate(prompt, n_decode);
    expect_meaningful(trace);
    return known.emplace(key, std::move(trace)).first->second;
}

const Trace & whole_trace(const LlamaEngineParams & params, const std::vector<int32_t> & prompt, int n_decode) {
    return solo_trace(params, {}, prompt, n_decode);
}

bool same_bytes(const std::vector<float> & a, const std::vector<float> & b) {
    return a.size() == b.size() && !a.empty() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_meaningful(const Trace & trace) {
    ASSERT_FALSE(trace.logits.empty());
    EXPECT_TRUE(all_finite(trace.logits.data(), trace.logits.size()));
    const auto [low, high] = std::minmax_element(trace.logits.begin(), trace.logits.end());
    EXPECT_GT(*high - *low, 0.1F);
}

}  // namespace dgr::testing
