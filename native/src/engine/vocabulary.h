// Text to token ids and back, by the vocabulary of the model.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

struct llama_vocab;

namespace dgr {

// Throws std::runtime_error when the text is too long or upstream cannot take it.
std::vector<int32_t> tokenize_text(const llama_vocab * vocab, std::string_view text, bool add_special,
                                   bool parse_special);

// Throws InvalidFrame (token_ids) for an id outside the vocabulary.
std::string detokenize_ids(const llama_vocab * vocab, const std::vector<int32_t> & ids, bool remove_special,
                           bool unparse_special);

}  // namespace dgr
