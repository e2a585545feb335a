#include "llama-engine.h"

#include "devices.h"
#include "finite.h"
#include "frame-rules.h"
#include "llama-setup.h"
#include "sampler.h"
#include "slot-table.h"
#include "upstream-log.h"
#include "vocabulary.h"

#include <algorithm>
#include <numeric>

namespace dgr {

namespace {

// Everything that upstream reads of a batch whose rows have one sequence each. Filled frame by frame.
struct BatchRows {
    std::vector<llama_pos>      position;
    std::vector<int32_t>        n_sequences;
    std::vector<llama_seq_id>   sequence;
    std::vector<llama_seq_id *> sequences;
    std::vector<int8_t>         output;
    std::vector<llama_token>    token;     // used when frames are joined
    std::vector<float>          boundary;  // likewise
    uint32_t                    n_rows = 0;

    explicit BatchRows(uint32_t most)
        : position(most), n_sequences(most, 1), sequence(most), sequences(most), output(most), token(most) {
        for (uint32_t i = 0; i < most; i++) {
            sequences[i] = &sequence[i];
        }
    }

    void add(const EngineFrame & frame, uint32_t sequence_id, bool all_outputs) {
        const auto from = static_cast<std::ptrdiff_t>(n_rows);
        std::iota(position.begin() + from, position.begin() + from + frame.n_rows,
                  static_cast<llama_pos>(frame.first_position));
        std::fill_n(sequence.begin() + from, frame.n_rows, static_cast<llama_seq_id>(sequence_id));
        std::fill_n(output.begin() + from, frame.n_rows, static_cast<int8_t>(all_outputs));
        n_rows += frame.n_rows;
        output[n_rows - 1] = 1;  // the last row always: it is what shows that the frame came out finite
    }
};

class LlamaEngine final : public ShardEngine {
public:
    LlamaEngine(LlamaEngineParams engine_params, const GgufFile & file, const Adapter & adapter)
        : params(std::move(engine_params)), rows(params.n_ubatch), slots(params.slot_classes) {
        model = load_model(params, adapter.facts().n_layer);
        own_tensors(file, params.range, adapter.facts().n_layer, params.use_mmap);
        vocab = llama_model_get_vocab(model.get());
        pool  = make_threadpool(params);
        describe_model(file, adapter);

        for (const SlotClass & slot_class : params.slot_classes) {
            contexts.push_back(make_context(model.get(), params, slot_class, description.is_tail(), pool.get()));
            run_largest_call(static_cast<uint32_t>(contexts.size()) - 1);
        }
    }

    LlamaEngine(const LlamaEngine &)             = delete;
    LlamaEngine & operator=(const LlamaEngine &) = delete;

    const EngineDescription & describe() const override { return description; }

    int32_t open(uint32_t n_ctx) override {
        const int32_t index = slots.find_free(n_ctx);
        if (index >= 0) {
            Slot & slot = slots.known(static_cast<uint32_t>(index));
            clear(slot);
            slot.open = true;
        }
        return index;
    }

    uint32_t largest_free() const override { return slots.largest_free(); }
    uint32_t slot_n_ctx(uint32_t slot) const override { return slots.known(slot).n_ctx; }
    uint32_t position(uint32_t slot) const override { return slots.opened(slot).position; }

    void sample_with(uint32_t index, const Sampling & sampling) override {
        const Slot & slot = slots.opened(index);
        if (!description.is_tail() || slot.position > 0) {
            throw InvalidFrame("sampling", "only the tail chooses tokens, and only in one way from the first frame on");
        }
        samplers.set(index, sampling, description.n_vocab, slot.n_ctx);
    }

    void check(const EngineFrame & frame) const override {
        check_engine_frame(frame, slots.opened(frame.slot), description, params);
    }

    void execute_joined(const EngineFrame * frames, EngineOutput * outputs, size_t n) override {
        for (size_t i = 0; i < n; i++) {
            check(frames[i]);
        }
        check_joined(frames, n, slots, params.n_ubatch);

        try {
            compute(slots.opened(frames[0].slot), frames, outputs, n);
        } catch (const std::exception & error) {
            for (size_t i = 0; i < n; i++) {
                Slot & slot = slots.opened(frames[i].slot);
                slot.failed = true;
                slot.soiled = true;
                clear(slot);
            }
            const auto * not_finite = dynamic_cast<const NotFinite *>(&error);
            throw EngineFailure("stage [" + std::to_string(params.range.first) + ", " +
                                std::to_string(params.range.last) + "), position " +
                                std::to_string(frames[0].first_position) + ": " + error.what(),
                                not_finite == nullptr ? "" : not_finite->values);
        }
        for (size_t i = 0; i < n; i++) {
            slots.opened(frames[i].slot).position += frames[i].n_rows;
        }
    }

    void close(uint32_t index) override {
        Slot & slot = slots.known(index);
        if (!slot.open) {
            return;
        }
        clear(slot);
        samplers.forget(index);
        slot.open   = false;
        slot.failed = false;

        // Removing a sequence leaves the numbers in its cells, and a masked NaN is a NaN still. Upstream can
        // only wipe all sequences of a context at once, so a soiled slot waits for its neighbours.
        if (slots.wants_wipe(slot.slot_class)) {
            llama_memory_clear(memory(slot), true);
            slots.wiped(slot.slot_class);
        }
    }

    std::vector<int32_t> tokenize(std::string_view text, bool add_special, bool parse_special) const override {
        return tokenize_text(vocab, text, add_special, parse_special);
    }

    std::string detokenize(const std::vector<int32_t> & ids, bool remove_special, bool unparse_special) const override {
        return detokenize_ids(vocab, ids, remove_special, unparse_special);
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
        const ggml_backend_dev_t device = find_device(params.device);
        numerics.backend            = backend_name(device);
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

        description.devices.push_back(describe_device(device));

        const auto width = static_cast<int32_t>(description.boundary.width);
        if (llama_model_n_layer(model.get()) != static_cast<int32_t>(facts.n_layer) ||
            (!description.is_head() && llama_model_n_embd_inp(model.get()) != width) ||
            (!description.is_tail() && llama_model_n_embd_out(model.get()) != width)) {
            throw StartError(StartError::Kind::failed, "llama.cpp and the " + description.adapter +
                                                           " adapter disagree about the model's shape");
        }
    }

    // A worker that starts can run any call: the first one to need the memory is this, not a client's.
    void run_largest_call(uint32_t slot_class) {
        const SlotClass & sizes    = params.slot_classes[slot_class];
        const uint32_t    n_rows   = std::min(params.n_ubatch, sizes.n_ctx);
        const uint32_t    n_frames = std::min(sizes.slots, params.n_ubatch / n_rows);

        const std::vector<int32_t> ids(n_rows, 0);
        const std::vector<float>   zeros(description.is_head() ? 0 : size_t(n_rows) * description.boundary.width);

        EngineFrame frame;
        frame.n_rows      = n_rows;
        frame.token_ids   = ids.data();
        frame.boundary    = description.is_head() ? nullptr : zeros.data();
        frame.want_logits = LogitsWanted::all;

        Slot slot;
        slot.slot_class = slot_class;
        try {
            decode(slot, std::vector<EngineFrame>(n_frames, frame).data(), n_frames);
        } catch (const std::exception & error) {
            throw StartError(StartError::Kind::memory,
                             "the largest call, " + std::to_string(n_frames) + " frames of " + std::to_string(n_rows) +
                                 " rows, cannot be run: " + error.what());
        }
        llama_memory_clear(memory(slot), true);
    }

    llama_context * context(const Slot & slot) const { return contexts[slot.slot_class].get(); }
    llama_memory_t  memory(const Slot & slot) const { return llama_get_memory(context(slot)); }

    bool wants_all(const EngineFrame & frame) const {
        return !description.is_tail() || frame.want_logits == LogitsWanted::all;
    }

    // `first` is the slot of the first frame; those of the others follow it.
    void decode(const Slot & first, const EngineFrame * frames, size_t n) {
        rows.n_rows = 0;
        for (size_t i = 0; i < n; i++) {
            rows.add(frames[i], first.sequence + static_cast<uint32_t>(i), wants_all(frames[i]));
        }

        llama_batch batch{};
        batch.n_tokens = static_cast<int32_t>(rows.n_rows);
        batch.token    = const_cast<llama_token *>(frames[0].token_ids);  // upstream only reads
        batch.embd     = const_cast<float *>(frames[0].boundary);
        if (n > 1) {
            gather(batch, frames, n);
        }
        batch.pos      = rows.position.data();
        batch.n_seq_id = rows.n_sequences.data();
        batch.seq_id   = rows.sequences.data();
        batch.logits   = rows.output.data();

        forget_upstream_error();
        const int32_t result = llama_decode(context(first), batch);
        if (result != 0) {
            throw std::runtime_error("llama_decode returned " + std::to_string(result) + " (" +
                                     upstream_error("no reason given") + ")");
        }
        llama_synchronize(context(first));
    }

    // Upstream wants the ids and the boundary of a call in one piece.
    void gather(llama_batch & batch, const EngineFrame * frames, size_t n) {
        const size_t width = description.is_head() ? 0 : description.boundary.width;
        rows.boundary.resize(size_t(params.n_ubatch) * width);
        size_t row = 0;
        for (size_t i = 0; i < n; i++) {
            std::copy_n(frames[i].token_ids, frames[i].n_rows, rows.token.data() + row);
            std::copy_n(frames[i].boundary, frames[i].n_rows * width, rows.boundary.data() + row * width);
            row += frames[i].n_rows;
        }
        batch.token = rows.token.data();
        batch.embd  = description.is_head() ? nullptr : rows.boundary.data();
    }

    void compute(const Slot & first, const EngineFrame * frames, EngineOutput * outputs, size_t n) {
        decode(first, frames, n);

        const float * values = description.is_tail() ? llama_get_logits(context(first)) : llama_get_embeddings(context(first));
        if (values == nullptr) {
            throw std::runtime_error("nothing came out");
        }
        for (size_t i = 0; i < n; i++) {
            if (description.is_tail()) {
                values = read_logits(values, frames[i], outputs[i]);
            } else {
                values = read_boundary(values, frames[i], outputs[i]);
            }
        }
    }

    // Both return where the values of the next frame begin.
    const float * read_boundary(const float * boundary, const EngineFrame & frame, EngineOutput & output) const {
        const size_t n = size_t(frame.n_rows) * description.boundary.width;
        if (params.check_finite && !all_within(boundary, n, params.boundary_limit)) {
            throw NotFinite("outgoing boundary", "holds values that are not finite, or beyond 2^100");
        }
        output.boundary      = boundary;
        output.boundary_rows = frame.n_rows;
        return boundary + n;
    }

    const float * read_logits(const float * logits, const EngineFrame & frame, EngineOutput & output) {
        const size_t   width  = description.n_vocab;
        const uint32_t n_rows = wants_all(frame) ? frame.n_rows : 1;
        if (params.check_finite && !all_finite(logits, n_rows * width)) {
            throw NotFinite("outgoing logits", "hold values that are not finite");
        }
        output.token = samplers.next(frame, logits + (n_rows - 1) * width, description.n_vocab);
        if (frame.want_logits != LogitsWanted::none) {
            output.logits.assign(logits, logits + n_rows * width);
            output.logits_rows = n_rows;
        }
        return logits + n_rows * width;
    }

    void clear(Slot & slot) {
        llama_memory_seq_rm(memory(slot), static_cast<llama_seq_id>(slot.sequence), -1, -1);
        slot.position = 0;
    }

    LlamaEngineParams params;
    EngineDescription description;
    BatchRows         rows;
    SlotTable         slots;
    SlotSamplers      samplers;

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
        // Mapped, a device's weights are read with much that lies between them in the file, and stay cached beside it.
        settled.use_mmap = params.use_mmap && is_cpu(find_device(params.device));
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
