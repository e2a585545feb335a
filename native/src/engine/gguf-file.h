// The metadata and the tensor index of a GGUF, whole or split, read before llama.cpp sees the file.

#pragma once

#include "dgr/shard-engine.h"

#include "ggml-cpp.h"

#include <optional>
#include <string>
#include <vector>

namespace dgr {

struct GgufTensor {
    std::string name;
    uint32_t    part   = 0;
    uint64_t    offset = 0;  // in the part's file
    uint64_t    size   = 0;
};

class GgufFile {
public:
    // Throws StartError (artifact) when a part is missing, broken or cut short.
    explicit GgufFile(const std::string & path);

    const std::vector<std::string> & parts() const { return paths; }
    const std::vector<GgufTensor> &  tensors() const { return index; }
    bool                             has_tensor(const std::string & name) const;

    // Values of the first part. A key of another type, or a required one that is absent, throws StartError.
    std::string                          text(const std::string & key) const;
    uint32_t                             number(const std::string & key) const;
    uint32_t                             number(const std::string & key, uint32_t otherwise) const;
    std::vector<uint32_t>                numbers(const std::string & key) const;  // a scalar counts as one
    std::optional<std::vector<uint32_t>> find_numbers(const std::string & key) const;
    uint64_t                             array_size(const std::string & key) const;  // 0 when absent
    bool                                 distinct_texts(const std::string & key) const;

private:
    void add_part(const std::string & path);

    std::vector<std::string>      paths;
    std::vector<gguf_context_ptr> contexts;
    std::vector<GgufTensor>       index;
};

// Tells whether the stage that runs `range` holds the tensor: embeddings are the head's, output tensors and
// everything past the main layers the tail's, the rest belongs to the owner of its layer.
bool is_own_tensor(const std::string & name, const LayerRange & range, uint32_t n_layer, bool tied_output);

}  // namespace dgr
