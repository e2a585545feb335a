// An engine of plain arithmetic. A residual is `width` numbers a token; each layer adds to them something that
// depends on the layer, the position, the token id and all ids before it, so that a wrong id, position, layer or
// a lost cache shows in the logits. A chain of ranges computes exactly what the whole does: the numbers are small
// integers in floats.

#pragma once

#include "dgr/shard-engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <thread>

namespace dgr {

struct FakeSettings {
    LayerRange range{0, 4};
    uint32_t   n_layer  = 4;
    uint32_t   width    = 8;
    uint32_t   n_vocab  = 32;
    uint32_t   n_ubatch = 4;
    uint32_t   slots    = 2;
    uint32_t   n_ctx    = 64;
};

class FakeEngine : public ShardEngine {
public:
    // What a test may change while the engine runs.
    struct Knobs {
        std::atomic<int>  delay_ms{0};
        std::atomic<bool> fail{false};
        std::atomic<bool> not_finite{false};
        std::atomic<int>  executed{0};  // frames
        std::atomic<int>  calls{0};     // of the engine; each executes one frame or several
        std::atomic<int>  refused_slot{-1};
        std::atomic<int>  open_slots{0};
    };

    FakeEngine(const FakeSettings & settings, std::shared_ptr<Knobs> knobs) : settings_(settings), knobs_(std::move(knobs)) {
        description_.architecture         = "fake";
        description_.adapter              = "dense";
        description_.adapter_version      = 1;
        description_.state_schema_version = 1;
        description_.n_layer              = settings.n_layer;
        description_.n_embd               = settings.width;
        description_.n_vocab              = settings.n_vocab;
        description_.range                = settings.range;
        description_.boundary             = {"residual", 1, settings.width};
        description_.numerics             = {"CPU", "none", settings.n_ubatch, 1, 1, false, "f16", "f16", false};
        description_.slot_classes         = {{settings.slots, settings.n_ctx}};
    }

    const EngineDescription & describe() const override { return description_; }

    int32_t open(uint32_t n_ctx) override {
        for (uint32_t slot = 0; n_ctx <= settings_.n_ctx && slot < settings_.slots; ++slot) {
            if (ids_.count(slot) == 0) {
                ids_[slot] = {};
                ++knobs_->open_slots;
                return static_cast<int32_t>(slot);
            }
        }
        return -1;
    }

    uint32_t largest_free() const override { return ids_.size() < settings_.slots ? settings_.n_ctx : 0; }
    uint32_t slot_n_ctx(uint32_t) const override { return settings_.n_ctx; }
    uint32_t position(uint32_t slot) const override { return static_cast<uint32_t>(ids_.at(slot).size()); }
    void     close(uint32_t slot) override {
        knobs_->open_slots -= static_cast<int>(ids_.erase(slot));
        seeds_.erase(slot);
    }
    void sample_with(uint32_t slot, const Sampling & sampling) override { seeds_[slot] = sampling.seed; }

    void check(const EngineFrame & frame) const override {
        if (static_cast<int>(frame.slot) == knobs_->refused_slot) {
            throw InvalidFrame("slot", "made to be refused");
        }
    }

    void execute_joined(const EngineFrame * frames, EngineOutput * outputs, size_t n) override {
        const bool fails = knobs_->fail;
        ++knobs_->calls;
        knobs_->executed += static_cast<int>(n);
        std::this_thread::sleep_for(std::chrono::milliseconds(knobs_->delay_ms));
        if (fails) {
            throw EngineFailure("made to fail");
        }
        if (knobs_->not_finite) {
            throw EngineFailure("made not finite", "outgoing boundary");
        }
        rows_.resize(n);
        for (size_t i = 0; i < n; ++i) {
            outputs[i] = compute(frames[i], rows_[i]);
        }
    }

    std::vector<int32_t> tokenize(std::string_view text, bool, bool) const override { return {text.begin(), text.end()}; }
    std::string detokenize(const std::vector<int32_t> & ids, bool, bool) const override { return {ids.begin(), ids.end()}; }

private:
    EngineOutput compute(const EngineFrame & frame, std::vector<float> & rows) {
        std::vector<int32_t> & ids = ids_.at(frame.slot);
        const uint32_t width = settings_.width;
        rows.assign(static_cast<size_t>(frame.n_rows) * width, 0.0f);
        for (uint32_t row = 0; row < frame.n_rows; ++row) {
            ids.push_back(frame.token_ids[row]);
            const uint32_t history = fold(ids);
            for (uint32_t i = 0; i < width; ++i) {
                float & value = rows[row * width + i];
                value = frame.boundary ? frame.boundary[row * width + i] : static_cast<float>(frame.token_ids[row]);
                for (uint32_t layer = settings_.range.first; layer < settings_.range.last; ++layer) {
                    value += static_cast<float>((history + layer * 31 + i * 7) % 101);
                }
            }
        }
        EngineOutput output;
        if (!description_.is_tail()) {
            output.boundary      = rows.data();
            output.boundary_rows = frame.n_rows;
            return output;
        }
        read_out(frame, rows, output);
        return output;
    }

    // Differs with every id before and with their order and number.
    static uint32_t fold(const std::vector<int32_t> & ids) {
        auto value = static_cast<uint32_t>(ids.size());
        for (int32_t id : ids) {
            value = value * 33 + static_cast<uint32_t>(id);
        }
        return value;
    }

    void read_out(const EngineFrame & frame, const std::vector<float> & rows, EngineOutput & output) const {
        const uint32_t n_vocab = settings_.n_vocab;
        const uint32_t first   = frame.want_logits == LogitsWanted::all ? 0 : frame.n_rows - 1;
        std::vector<float> logits;
        for (uint32_t row = first; row < frame.n_rows; ++row) {
            for (uint32_t token = 0; token < n_vocab; ++token) {
                const float value = rows[row * settings_.width + token % settings_.width];
                logits.push_back(std::fmod(value * static_cast<float>(token + 1), 127.0f));
            }
        }
        if (frame.want_token) {
            const auto last = logits.end() - n_vocab;
            output.token = static_cast<int32_t>(std::max_element(last, logits.end()) - last);
            if (seeds_.count(frame.slot) != 0) {
                output.token = static_cast<int32_t>((static_cast<uint64_t>(output.token) + seeds_.at(frame.slot)) % n_vocab);
            }
        }
        if (frame.want_logits != LogitsWanted::none) {
            output.logits_rows = frame.n_rows - first;
            output.logits      = std::move(logits);
        }
    }

    FakeSettings           settings_;
    std::shared_ptr<Knobs> knobs_;
    EngineDescription      description_;
    std::map<uint32_t, std::vector<int32_t>> ids_;  // of each open slot
    std::vector<std::vector<float>> rows_;  // of each frame of the last call
    std::map<uint32_t, uint64_t> seeds_;            // of those that do not choose greedily; each shifts its tokens
};

}  // namespace dgr
