// Fuzz target: sequences of frames on real engines over tiny models, with the worker's default limits.
//
// DGR_TINY_LLAMA and DGR_TINY_V4 name the models. Every run takes one of six engines, which outlive it.

#include "finite.h"
#include "input.h"
#include "llama-engine.h"
#include "require.h"

#include <array>
#include <memory>
#include <vector>

namespace dgr::fuzz {

namespace {

constexpr int      MOST_CALLS = 16;
constexpr uint32_t N_UBATCH   = 8;
constexpr uint32_t N_SLOTS    = 3;
constexpr uint32_t N_CTX      = 48;

enum class Part { whole, head, tail };

struct Kind {
    const char * variable;
    uint32_t     cut;
};
constexpr std::array<Kind, 2> KINDS = { { { "DGR_TINY_LLAMA", 2 }, { "DGR_TINY_V4", 21 } } };

ShardEngine & engine_of(uint32_t kind, Part part) {
    static std::array<std::array<std::unique_ptr<ShardEngine>, 3>, KINDS.size()> engines;
    auto & engine = engines[kind][static_cast<size_t>(part)];
    if (!engine) {
        const char * model = std::getenv(KINDS[kind].variable);
        require(model != nullptr, std::string(KINDS[kind].variable) + " must name a tiny model (dgr-build model tiny)");
        LlamaEngineParams params;
        params.model_path   = model;
        params.n_ubatch     = N_UBATCH;
        params.slot_classes = { { N_SLOTS - 1, N_CTX }, { 1, 2 * N_CTX } };
        params.range        = { part == Part::tail ? KINDS[kind].cut : 0, part == Part::head ? KINDS[kind].cut : 0 };
        engine              = make_llama_engine(params);
    }
    return *engine;
}

struct Sent {
    std::vector<int32_t> ids;
    std::vector<float>   boundary;
    bool                 want_token  = false;
    LogitsWanted         want_logits = LogitsWanted::none;
};

// What came out, as numbers.
struct Answer {
    std::vector<float> values;
    int32_t            token = -1;
};

struct Open {
    bool              open   = false;
    bool              failed = false;
    uint32_t          rows   = 0;
    std::vector<Sent> sent;
    Answer            last;
};

std::string_view bits_of(const std::vector<float> & values) {
    return { reinterpret_cast<const char *>(values.data()), values.size() * sizeof(float) };
}

float some_value(Input & input) {
    switch (input.below(6)) {
        case 0: return 0.0F;
        case 1: return static_cast<float>(input.byte()) / 64.0F - 2.0F;
        case 2: return BOUNDARY_LIMIT * (input.one_in(2) ? 1.0F : -1.0F);
        case 3: return 0x1p-140F;
        case 4: return static_cast<float>(input.byte()) * 1e6F;
        default: {
            const uint32_t bits = input.number32();
            float          value = 0;
            std::memcpy(&value, &bits, sizeof(value));
            return value;
        }
    }
}

class Run {
public:
    Run(ShardEngine & engine, Input & input) : engine_(engine), about_(engine.describe()), input_(input) {}

    void open() {
        const uint32_t n_ctx = input_.one_in(4) ? input_.number32() : 1 + input_.below(2 * N_CTX);
        const uint32_t most  = engine_.largest_free();
        const int32_t  slot  = engine_.open(n_ctx);
        require((slot >= 0) == (n_ctx <= most), "a slot is refused that would fit, or given that does not");
        if (slot >= 0) {
            require(static_cast<size_t>(slot) < slots_.size() && !slots_[slot].open, "a slot is given twice");
            require(engine_.slot_n_ctx(slot) >= n_ctx && engine_.position(slot) == 0, "a slot is too small, or not empty");
            slots_[slot]      = {};
            slots_[slot].open = true;
        }
    }

    void close() {
        const uint32_t slot = input_.below(N_SLOTS);
        engine_.close(slot);
        slots_[slot] = {};
    }

    void frame() { execute(input_.below(N_SLOTS), some_frame(), false); }

    // One thing about it is wrong, or may be.
    void spoilt_frame() { execute(input_.one_in(4) ? input_.byte() : input_.below(N_SLOTS), some_frame(), true); }

    // The same frames alone, in a slot of their own, give the same bytes.
    void finish() {
        size_t chosen = slots_.size();
        for (size_t i = 0; i < slots_.size(); ++i) {
            if (slots_[i].open && !slots_[i].failed && !slots_[i].sent.empty()) {
                chosen = i;
            }
            engine_.close(static_cast<uint32_t>(i));
        }
        if (chosen == slots_.size()) {
            return;
        }
        const int32_t slot = engine_.open(engine_.slot_n_ctx(static_cast<uint32_t>(chosen)));
        require(slot >= 0, "no slot although all are free");
        Answer answer;
        for (const Sent & sent : slots_[chosen].sent) {
            const EngineFrame frame = frame_of(static_cast<uint32_t>(slot), engine_.position(slot), sent);
            answer = read(frame, engine_.execute(frame));
        }
        const Answer & before = slots_[chosen].last;
        require(answer.token == before.token && bits_of(answer.values) == bits_of(before.values), "a session alone gives other bits than beside others");
        engine_.close(static_cast<uint32_t>(slot));
    }

private:
    Sent some_frame() {
        Sent           sent;
        const uint32_t rows = 1 + input_.below(input_.one_in(2) ? N_UBATCH : 4);
        for (uint32_t i = 0; i < rows; ++i) {
            const uint32_t high = input_.byte();  // compilers evaluate operands in different orders
            sent.ids.push_back(static_cast<int32_t>((high * 256 + input_.byte()) % about_.n_vocab));
        }
        if (!about_.is_head()) {
            // A few values again and again: a row has hundreds.
            std::array<float, 7> few{};
            for (float & value : few) {
                value = some_value(input_);
            }
            sent.boundary.resize(size_t(rows) * about_.boundary.width);
            for (size_t i = 0; i < sent.boundary.size(); ++i) {
                sent.boundary[i] = few[(i * 31 + i / about_.boundary.width) % few.size()];
            }
        }
        if (about_.is_tail()) {
            sent.want_token  = input_.one_in(2);
            sent.want_logits = static_cast<LogitsWanted>(input_.below(3));
        }
        return sent;
    }

    static EngineFrame frame_of(uint32_t slot, uint32_t position, const Sent & sent) {
        EngineFrame frame;
        frame.slot           = slot;
        frame.first_position = position;
        frame.n_rows         = static_cast<uint32_t>(sent.ids.size());
        frame.token_ids      = sent.ids.data();
        frame.boundary       = sent.boundary.empty() ? nullptr : sent.boundary.data();
        frame.want_token     = sent.want_token;
        frame.want_logits    = sent.want_logits;
        return frame;
    }

    void spoil(EngineFrame & frame, Sent & sent) {
        switch (input_.below(8)) {
            case 0: frame.first_position += 1 + input_.byte(); break;
            case 1: frame.n_rows = 0; break;
            case 2: frame.n_rows = N_UBATCH + 1 + input_.byte(); break;
            case 3: sent.ids[input_.below(frame.n_rows)] = static_cast<int32_t>(input_.number32()); break;
            case 4: frame.token_ids = nullptr; break;
            case 5: frame.boundary = frame.boundary != nullptr ? nullptr : unwanted_.data(); break;
            case 6: frame.want_token = true; break;
            default: frame.want_logits = LogitsWanted::all; break;
        }
    }

    // Whether nothing in it breaks a rule; then the engine must take it.
    bool is_legal(const EngineFrame & frame) const {
        if (frame.slot >= slots_.size() || !slots_[frame.slot].open || frame.token_ids == nullptr) {
            return false;
        }
        const Open & slot = slots_[frame.slot];
        bool         fine = frame.first_position == slot.rows && frame.n_rows >= 1 && frame.n_rows <= N_UBATCH;
        fine = fine && frame.n_rows <= engine_.slot_n_ctx(frame.slot) - slot.rows;
        fine = fine && about_.is_head() == (frame.boundary == nullptr);
        fine = fine && (about_.is_tail() || (!frame.want_token && frame.want_logits == LogitsWanted::none));
        for (uint32_t i = 0; fine && i < frame.n_rows; ++i) {
            fine = frame.token_ids[i] >= 0 && static_cast<uint32_t>(frame.token_ids[i]) < about_.n_vocab;
        }
        const size_t values = size_t(frame.n_rows) * about_.boundary.width;
        return fine && (frame.boundary == nullptr || all_within(frame.boundary, values, BOUNDARY_LIMIT));
    }

    Answer read(const EngineFrame & frame, const EngineOutput & output) const {
        Answer answer;
        if (!about_.is_tail()) {
            require(output.boundary != nullptr && output.boundary_rows == frame.n_rows, "no boundary comes out, or of other rows");
            const size_t values = size_t(frame.n_rows) * about_.boundary.width;
            require(all_within(output.boundary, values, BOUNDARY_LIMIT), "a boundary beyond the limit comes out");
            answer.values.assign(output.boundary, output.boundary + values);
            return answer;
        }
        const uint32_t rows = frame.want_logits == LogitsWanted::all ? frame.n_rows : frame.want_logits == LogitsWanted::last ? 1 : 0;
        require(output.logits_rows == rows && output.logits.size() == size_t(rows) * about_.n_vocab, "logits of other rows");
        require(all_finite(output.logits.data(), output.logits.size()), "logits that are not finite");
        require(frame.want_token == (output.token >= 0) && output.token < static_cast<int32_t>(about_.n_vocab), "a token that is none");
        answer.values = output.logits;
        answer.token  = output.token;
        return answer;
    }

    void execute(uint32_t number, Sent sent, bool spoilt) {
        EngineFrame frame = frame_of(number, number < slots_.size() ? slots_[number].rows : 0, sent);
        if (spoilt) {
            spoil(frame, sent);
        }
        const bool legal = is_legal(frame);
        Open       none;
        Open &     slot = number < slots_.size() ? slots_[number] : none;
        try {
            const Answer answer = read(frame, engine_.execute(frame));
            require(legal && !slot.failed, "a frame is computed that breaks a rule");
            sent.want_token  = frame.want_token;
            sent.want_logits = frame.want_logits;
            slot.rows += frame.n_rows;
            slot.sent.push_back(std::move(sent));
            slot.last = answer;
        } catch (const InvalidFrame & error) {
            require(!legal, "a legal frame is refused: " + error.field + ": " + error.what());
        } catch (const EngineFailure & error) {
            require(slot.open, "a slot fails that is not open");
            require(slot.failed || (legal && !about_.is_head()), std::string("an engine fails at its own: ") + error.what());
            slot.failed = true;
            slot.rows   = 0;
        }
        if (slot.open) {
            require(engine_.position(number) == slot.rows, "a position moves without a frame, or does not with one");
        }
    }

    ShardEngine &             engine_;
    const EngineDescription & about_;
    Input &                   input_;
    std::vector<Open>         slots_    = std::vector<Open>(N_SLOTS);
    std::vector<float>        unwanted_ = std::vector<float>(1 << 16);
};

void (Run::*const CALLS[])() = { &Run::open, &Run::open, &Run::frame, &Run::frame, &Run::frame,
                                 &Run::frame, &Run::frame, &Run::spoilt_frame, &Run::close };

}  // namespace

}  // namespace dgr::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    using namespace dgr::fuzz;
    Input input(data, size);
    const uint32_t kind = input.below(KINDS.size());
    Run run(engine_of(kind, static_cast<Part>(input.below(3))), input);
    for (int i = 0; i < MOST_CALLS && !input.empty(); ++i) {
        (run.*CALLS[input.below(std::size(CALLS))])();
    }
    run.finish();
    return 0;
}
