#include "llama-engine.h"

#include "finite.h"
#include "llama-setup.h"
#include "upstream-log.h"

#include <algorithm>
#include <numeric>

namespace dgr {

namespace {

// One fixed sequence of one context.
struct Slot {
    uint32_t     context  = 0;  // index of its class
    llama_seq_id sequence = 0;
    uint32_t     position = 0;
    bool         open     = false;
    bool         failed   = false;  // takes no frame until closed
    bool         soiled   = false;  // its cells may hold NaN: not given out until wiped
};

// Everything that upstream reads of a batch, for one sequence.
struct BatchRows {
    std::vector<llama_pos>      position;
    std::vector<int32_t>        n_sequences;
    std::vector<llama_seq_id *> sequences;
    std::vector<int8_t>         output;
    llama_seq_id                sequence = 0;

    explicit BatchRows(uint32_t n_rows)
        : position(n_rows), n_sequences(n_rows, 1), sequences(n_rows, &sequence), output(n_rows) {}
};

class LlamaEngine final : public ShardEngine {
public:
    LlamaEngine(LlamaEngineParams engine_params, const GgufFile & file, const Adapter & adapter)
        : params(std::move(engine_params)), rows(params.n_ubatch) {
        own_tensors(file, params.range, adapter.facts().n_layer, params.use_mmap);

        model = load_model(params, adapter.facts().n_layer);
        vocab = llama_model_get_vocab(model.get());
        pool  = make_threadpool(params);
        describe_model(file, adapter);

        for (const SlotClass & slot_class : params.slot_classes) {
            const auto index = static_cast<uint32_t>(contexts.size());
            contexts.push_back(make_context(model.get(), params, slot_class, description.is_tail(), pool.get()));
            for (uint32_t i = 0; i < slot_class.slots; i++) {
                Slot slot;
                slot.context  = index;
                slot.sequence = static_cast<llama_seq_id>(i);
                slots.push_back(slot);
            }
            run_largest_frame(index);
        }
    }

    LlamaEngine(const LlamaEngine &)             = delete;
    LlamaEngine & operator=(const LlamaEngine &) = delete;

    const EngineDescription & describe() const override { return description; }

    int32_t open(uint32_t n_ctx) override {
        int32_t best = -1;
        for (size_t i = 0; i < slots.size(); i++) {
            const bool fits = is_free(slots[i]) && capacity(slots[i]) >= n_ctx;
            if (fits && (best < 0 || capacity(slots[i]) < capacity(slots[best]))) {
                best = static_cast<int32_t>(i);
            }
        }
        if (best >= 0) {
            clear(slots[best]);
            slots[best].open = true;
        }
        return best;
    }

    uint32_t largest_free() const override {
        uint32_t largest = 0;
        for (const Slot & slot : slots) {
            if (is_free(slot)) {
                largest = std::max(largest, capacity(slot));
            }
        }
        return largest;
    }

    uint32_t slot_n_ctx(uint32_t slot) const override { return capacity(known(slot)); }
    uint32_t position(uint32_t slot) const override { return opened(slot).position; }

    EngineOutput execute(const EngineFrame & frame) override {
        Slot & slot = const_cast<Slot &>(opened(frame.slot));
        check(slot, frame);

        try {
            EngineOutput output = compute(slot, frame);
            slot.position += frame.n_rows;
            return output;
        } catch (const std::exception & error) {
            slot.failed = true;
            slot.soiled = true;
            clear(slot);
            throw EngineFailure("stage [" + std::to_string(params.range.first) + ", " +
                                std::to_string(params.range.last) + "), position " +
                                std::to_string(frame.first_position) + ": " + error.what());
        }
    }

    void close(uint32_t index) override {
        Slot & slot = const_cast<Slot &>(known(index));
        if (!slot.open) {
            return;
        }
        clear(slot);
        slot.open   = false;
        slot.failed = false;
        wipe_when_idle(slot.context);
    }

    std::vector<int32_t> tokenize(std::string_view text, bool add_special, bool parse_special) const override {
        const auto           length = static_cast<int32_t>(text.size());
        std::vector<int32_t> ids(text.size() + 2);
        int32_t              n = 0;
        for (int attempt = 0; attempt < 2; attempt++) {
            n = llama_tokenize(vocab, text.data(), length, ids.data(), static_cast<int32_t>(ids.size()), add_special,
                               parse_special);
            if (n >= 0) {
                break;
            }
            ids.resize(static_cast<size_t>(-static_cast<int64_t>(n)));
        }
        if (n < 0) {
            throw std::runtime_error("the text cannot be tokenized");
        }
        ids.resize(static_cast<size_t>(n));
        return ids;
    }

    std::string detokenize(const std::vector<int32_t> & ids, bool remove_special, bool unparse_special) const override {
        for (const int32_t id : ids) {
            check_id(id);
        }
        std::string text(ids.size() * 8 + 16, '\0');
        int32_t     n = 0;
        for (int attempt = 0; attempt < 2; attempt++) {
            n = llama_detokenize(vocab, ids.data(), static_cast<int32_t>(ids.size()), text.data(),
                                 static_cast<int32_t>(text.size()), remove_special, unparse_special);
            if (n >= 0) {
                break;
            }
            text.resize(static_cast<size_t>(-static_cast<int64_t>(n)));
        }
        text.resize(static_cast<size_t>(std::max(n, 0)));
        return text;
    }

private:
    void describe_model(const GgufFile & file, const Adapter & adapter) {
        const ModelFacts & facts = adapter.facts();

        description.architecture         = facts.architecture;
        description.adapter              = adapter.name();
        description.adapter_version      = adapter.version();
        description.state_schema_version = adapter.state_schema_version();
        description.n_layer              = facts.n_layer;
        description.n_layer_nextn        = facts.n_layer_nextn;
        description.n_embd               = facts.n_embd;
        description.n_vocab              = static_cast<uint32_t>(llama_vocab_n_tokens(vocab));
        description.own_tensor_bytes     = own_tensors(file, params.range, facts.n_layer, false);
        description.range                = params.range;
        description.boundary             = adapter.boundary();
        description.legal_cuts           = adapter.legal_cuts();
        description.slot_classes         = params.slot_classes;

        Numerics & numerics         = description.numerics;
        numerics.backend            = "CPU";
        numerics.isa                = params.isa;
        numerics.n_ubatch           = params.n_ubatch;
        numerics.n_threads          = params.n_threads;
        numerics.n_threads_batch    = params.n_threads_batch;
        numerics.flash_attn         = params.flash_attn;
        numerics.type_k             = params.type_k;
        numerics.type_v             = params.type_v;
        numerics.extra_buffer_types = false;

        uint32_t longest = 0;
        for (const SlotClass & slot_class : params.slot_classes) {
            longest = std::max(longest, slot_class.n_ctx);
        }
        for (const StateLayout & kind : adapter.state(params.range, cache_settings(params))) {
            description.state.push_back(kind.describe(longest));
        }

        const ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
        if (cpu == nullptr) {
            throw StartError(StartError::Kind::failed, "this build has no CPU backend");
        }
        description.devices.push_back(std::string(ggml_backend_dev_name(cpu)) + ": " +
                                      ggml_backend_dev_description(cpu));

        const auto width = static_cast<int32_t>(description.boundary.width);
        if (llama_model_n_layer(model.get()) != static_cast<int32_t>(facts.n_layer) ||
            (!description.is_head() && llama_model_n_embd_inp(model.get()) != width) ||
            (!description.is_tail() && llama_model_n_embd_out(model.get()) != width)) {
            throw StartError(StartError::Kind::failed, "llama.cpp and the " + description.adapter +
                                                           " adapter disagree about the model's shape");
        }
    }

    // A worker that starts can run any frame: the first one to need the memory is this, not a client's.
    void run_largest_frame(uint32_t context) {
        const uint32_t n_rows = std::min(params.n_ubatch, params.slot_classes[context].n_ctx);

        const std::vector<int32_t> ids(n_rows, 0);
        const std::vector<float>   zeros(description.is_head() ? 0 : size_t(n_rows) * description.boundary.width);

        EngineFrame frame;
        frame.n_rows      = n_rows;
        frame.token_ids   = ids.data();
        frame.boundary    = description.is_head() ? nullptr : zeros.data();
        frame.want_logits = LogitsWanted::all;

        Slot slot;
        slot.context = context;
        forget_upstream_error();
        try {
            decode(slot, frame);
        } catch (const std::exception & error) {
            throw StartError(StartError::Kind::memory, "the largest frame, " + std::to_string(n_rows) +
                                                           " rows, cannot be run: " + error.what());
        }
        llama_memory_clear(llama_get_memory(contexts[context].get()), true);
    }

    uint32_t capacity(const Slot & slot) const { return params.slot_classes[slot.context].n_ctx; }

    static bool is_free(const Slot & slot) { return !slot.open && !slot.soiled; }

    const Slot & known(uint32_t slot) const {
        if (slot >= slots.size()) {
            throw InvalidFrame("slot", "there is no slot " + std::to_string(slot) + "; this engine has " +
                                           std::to_string(slots.size()));
        }
        return slots[slot];
    }

    const Slot & opened(uint32_t slot) const {
        if (!known(slot).open) {
            throw InvalidFrame("slot", "slot " + std::to_string(slot) + " is not open");
        }
        return slots[slot];
    }

    void check_id(int32_t id) const {
        if (id < 0 || static_cast<uint32_t>(id) >= description.n_vocab) {
            throw InvalidFrame("token_ids", "token id " + std::to_string(id) + " is not within 0 to " +
                                                std::to_string(description.n_vocab - 1));
        }
    }

    void check(const Slot & slot, const EngineFrame & frame) const {
        if (slot.failed) {
            throw EngineFailure("slot " + std::to_string(frame.slot) + " failed earlier; close it and start again");
        }
        if (frame.n_rows == 0 || frame.n_rows > params.n_ubatch) {
            throw InvalidFrame("rows", std::to_string(frame.n_rows) + " rows are not within 1 to " +
                                           std::to_string(params.n_ubatch));
        }
        if (frame.first_position != slot.position) {
            throw InvalidFrame("first_position", "position " + std::to_string(frame.first_position) +
                                                     " is not the next one, " + std::to_string(slot.position));
        }
        if (frame.n_rows > capacity(slot) - slot.position) {
            throw InvalidFrame("rows", std::to_string(frame.n_rows) + " rows at position " +
                                           std::to_string(slot.position) + " pass the slot's end at " +
                                           std::to_string(capacity(slot)));
        }
        if (frame.token_ids == nullptr) {
            throw InvalidFrame("token_ids", "every stage needs the token ids");
        }
        for (uint32_t i = 0; i < frame.n_rows; i++) {
            check_id(frame.token_ids[i]);
        }
        if (description.is_head() != (frame.boundary == nullptr)) {
            throw InvalidFrame("boundary", description.is_head() ? "the head takes token ids only"
                                                                 : "a stage past the head needs the boundary");
        }
        if (!description.is_tail() && frame.want_token) {
            throw InvalidFrame("want_token", "only the tail chooses tokens");
        }
        if (!description.is_tail() && frame.want_logits != LogitsWanted::none) {
            throw InvalidFrame("want_logits", "only the tail has logits");
        }
        if (params.check_finite && frame.boundary != nullptr &&
            !all_finite(frame.boundary, size_t(frame.n_rows) * description.boundary.width)) {
            throw InvalidFrame("boundary", "the incoming boundary holds values that are not finite");
        }
    }

    void decode(const Slot & slot, const EngineFrame & frame) {
        rows.sequence = slot.sequence;
        std::iota(rows.position.begin(), rows.position.begin() + frame.n_rows,
                  static_cast<llama_pos>(frame.first_position));

        // the last row always: it is what shows that the frame came out finite
        const bool all = !description.is_tail() || frame.want_logits == LogitsWanted::all;
        std::fill_n(rows.output.begin(), frame.n_rows, static_cast<int8_t>(all));
        rows.output[frame.n_rows - 1] = 1;

        llama_batch batch{};
        batch.n_tokens = static_cast<int32_t>(frame.n_rows);
        batch.token    = const_cast<llama_token *>(frame.token_ids);  // upstream only reads
        batch.embd     = const_cast<float *>(frame.boundary);
        batch.pos      = rows.position.data();
        batch.n_seq_id = rows.n_sequences.data();
        batch.seq_id   = rows.sequences.data();
        batch.logits   = rows.output.data();

        forget_upstream_error();
        const int32_t result = llama_decode(contexts[slot.context].get(), batch);
        if (result != 0) {
            throw std::runtime_error("llama_decode returned " + std::to_string(result) + " (" +
                                     upstream_error("no reason given") + ")");
        }
        llama_synchronize(contexts[slot.context].get());
    }

    EngineOutput compute(const Slot & slot, const EngineFrame & frame) {
        decode(slot, frame);

        llama_context * context = contexts[slot.context].get();
        EngineOutput    output;

        if (!description.is_tail()) {
            const float * boundary = llama_get_embeddings(context);
            if (boundary == nullptr) {
                throw std::runtime_error("no boundary came out");
            }
            if (params.check_finite && !all_finite(boundary, size_t(frame.n_rows) * description.boundary.width)) {
                throw std::runtime_error("the outgoing boundary holds values that are not finite");
            }
            output.boundary      = boundary;
            output.boundary_rows = frame.n_rows;
            return output;
        }

        const float *  logits = llama_get_logits(context);
        const size_t   width  = description.n_vocab;
        const uint32_t n_rows = frame.want_logits == LogitsWanted::all ? frame.n_rows : 1;
        if (logits == nullptr) {
            throw std::runtime_error("no logits came out");
        }
        if (params.check_finite && !all_finite(logits, n_rows * width)) {
            throw std::runtime_error("the outgoing logits hold values that are not finite");
        }
        if (frame.want_token) {
            const float * last = logits + (n_rows - 1) * width;
            output.token       = static_cast<int32_t>(std::max_element(last, last + width) - last);
        }
        if (frame.want_logits != LogitsWanted::none) {
            output.logits.assign(logits, logits + n_rows * width);
            output.logits_rows = n_rows;
        }
        return output;
    }

    void clear(Slot & slot) {
        llama_memory_seq_rm(llama_get_memory(contexts[slot.context].get()), slot.sequence, -1, -1);
        slot.position = 0;
    }

    // Removing a sequence leaves the numbers in its cells, and a masked NaN is a NaN still. Upstream can only
    // wipe all sequences of a context at once, so a soiled slot waits for its neighbours.
    void wipe_when_idle(uint32_t context) {
        const auto mine   = [&](const Slot & slot) { return slot.context == context; };
        const bool busy   = std::any_of(slots.begin(), slots.end(), [&](const Slot & s) { return mine(s) && s.open; });
        const bool soiled = std::any_of(slots.begin(), slots.end(), [&](const Slot & s) { return mine(s) && s.soiled; });
        if (busy || !soiled) {
            return;
        }
        llama_memory_clear(llama_get_memory(contexts[context].get()), true);
        for (Slot & slot : slots) {
            slot.soiled = slot.soiled && !mine(slot);
        }
    }

    LlamaEngineParams params;
    EngineDescription description;
    BatchRows         rows;
    std::vector<Slot> slots;

    // released from the last to the first: contexts before what they use
    llama_model_ptr                model;
    const llama_vocab *            vocab = nullptr;
    ThreadpoolPtr                  pool;
    std::vector<llama_context_ptr> contexts;
};

}  // namespace

std::unique_ptr<ShardEngine> make_llama_engine(const LlamaEngineParams & params) {
    route_upstream_log();

    LlamaEngineParams settled = params;
    try {
        const GgufFile file(settled.model_path);
        const auto     adapter = make_adapter(file);
        if (settled.range.last == 0) {
            settled.range.last = adapter->facts().n_layer;
        }
        adapter->check_range(settled.range);
        check_settings(settled, *adapter);
        check_memory(settled, *adapter, own_tensors(file, settled.range, adapter->facts().n_layer, false));

        return std::make_unique<LlamaEngine>(settled, file, *adapter);
    } catch (const StartError &) {
        throw;
    } catch (const std::bad_alloc &) {
        throw StartError(StartError::Kind::memory, settled.model_path + ": out of memory");
    } catch (const std::exception & error) {
        throw StartError(StartError::Kind::failed, settled.model_path + ": " + error.what());
    }
}

}  // namespace dgr
