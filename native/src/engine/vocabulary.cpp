#include "vocabulary.h"

#include "frame-rules.h"

#include "llama.h"

#include <cstddef>
#include <stdexcept>

namespace dgr {

namespace {

constexpr size_t MAX_TEXT = size_t(1) << 28;  // upstream counts in 32 bits

// Calls fill(buffer, size) until the buffer is as large as it asks for with a negative answer.
template <typename Buffer, typename Fill> Buffer fill_grown(size_t guess, Fill fill) {
    Buffer buffer(guess, 0);
    for (int attempt = 0; attempt < 2; attempt++) {
        const int32_t n = fill(buffer.data(), static_cast<int32_t>(buffer.size()));
        buffer.resize(static_cast<size_t>(n < 0 ? -static_cast<int64_t>(n) : n));
        if (n >= 0) {
            return buffer;
        }
    }
    throw std::runtime_error("the vocabulary cannot take this input");
}

}  // namespace

std::vector<int32_t> tokenize_text(const llama_vocab * vocab, std::string_view text, bool add_special,
                                   bool parse_special) {
    if (text.size() > MAX_TEXT) {
        throw std::runtime_error("a text of " + std::to_string(text.size()) + " bytes is too long");
    }
    return fill_grown<std::vector<int32_t>>(text.size() + 2, [&](int32_t * ids, int32_t size) {
        return llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), ids, size, add_special,
                              parse_special);
    });
}

std::string detokenize_ids(const llama_vocab * vocab, const std::vector<int32_t> & ids, bool remove_special,
                           bool unparse_special) {
    if (ids.size() > MAX_TEXT / 8) {
        throw std::runtime_error(std::to_string(ids.size()) + " token ids are too many");
    }
    for (const int32_t id : ids) {
        check_token_id(id, static_cast<uint32_t>(llama_vocab_n_tokens(vocab)));
    }
    return fill_grown<std::string>(ids.size() * 8 + 16, [&](char * text, int32_t size) {
        return llama_detokenize(vocab, ids.data(), static_cast<int32_t>(ids.size()), text, size, remove_special,
                                unparse_special);
    });
}

}  // namespace dgr
