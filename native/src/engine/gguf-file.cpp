#include "gguf-file.h"

#include "upstream-log.h"

#include "llama.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <unordered_set>

namespace dgr {

namespace {

[[noreturn]] void broken(const std::string & path, const std::string & reason) {
    throw StartError(StartError::Kind::artifact, path + ": " + reason);
}

// The value of an integer or boolean key or array element, whatever its width; nothing when it is none or does not fit.
std::optional<uint32_t> integer_at(gguf_type type, const void * data, size_t i) {
    int64_t value = 0;
    switch (type) {
        case GGUF_TYPE_UINT8:  value = static_cast<const uint8_t *>(data)[i]; break;
        case GGUF_TYPE_INT8:   value = static_cast<const int8_t *>(data)[i]; break;
        case GGUF_TYPE_UINT16: value = static_cast<const uint16_t *>(data)[i]; break;
        case GGUF_TYPE_INT16:  value = static_cast<const int16_t *>(data)[i]; break;
        case GGUF_TYPE_UINT32: value = static_cast<const uint32_t *>(data)[i]; break;
        case GGUF_TYPE_INT32:  value = static_cast<const int32_t *>(data)[i]; break;
        case GGUF_TYPE_INT64:  value = static_cast<const int64_t *>(data)[i]; break;
        case GGUF_TYPE_BOOL:   value = static_cast<const int8_t *>(data)[i] != 0; break;
        case GGUF_TYPE_UINT64: {
            const uint64_t wide = static_cast<const uint64_t *>(data)[i];
            value = wide > UINT32_MAX ? -1 : static_cast<int64_t>(wide);
        } break;
        default: return std::nullopt;
    }
    if (value < 0 || value > UINT32_MAX) {
        return std::nullopt;
    }
    return static_cast<uint32_t>(value);
}

}  // namespace

GgufFile::GgufFile(const std::string & path) {
    add_part(path);

    const uint32_t n_parts = number("split.count", 1);
    if (n_parts <= 1) {
        return;
    }
    if (number("split.no", 0) != 0) {
        broken(path, "this is a later part of a split model; give the first part");
    }
    std::array<char, 4096> prefix{};
    if (llama_split_prefix(prefix.data(), prefix.size(), path.c_str(), 0, static_cast<int>(n_parts)) == 0) {
        broken(path, "a split model's first part must be called NAME-00001-of-" + std::to_string(n_parts) +
                         " with five digits each; give it that name");
    }
    for (uint32_t i = 1; i < n_parts; i++) {
        std::array<char, 4096> name{};
        llama_split_path(name.data(), name.size(), prefix.data(), static_cast<int>(i), static_cast<int>(n_parts));
        add_part(name.data());
    }
}

void GgufFile::add_part(const std::string & path) {
    std::error_code error;
    const uint64_t  file_size = std::filesystem::file_size(path, error);
    if (error) {
        broken(path, "cannot be read (" + error.message() + ")");
    }

    forget_upstream_error();
    gguf_context_ptr context(gguf_init_from_file(path.c_str(), { /*.no_alloc =*/ true, /*.ctx =*/ nullptr }));
    if (!context) {
        broken(path, "is no readable GGUF (" + upstream_error("no reason given") + ")");
    }

    const auto     part       = static_cast<uint32_t>(paths.size());
    const uint64_t data_start = gguf_get_data_offset(context.get());
    for (int64_t i = 0; i < gguf_get_n_tensors(context.get()); i++) {
        GgufTensor tensor;
        tensor.name   = gguf_get_tensor_name(context.get(), i);
        tensor.part   = part;
        tensor.offset = data_start + gguf_get_tensor_offset(context.get(), i);
        tensor.size   = gguf_get_tensor_size(context.get(), i);
        if (tensor.offset < data_start || tensor.offset > file_size || tensor.size > file_size - tensor.offset) {
            broken(path, "tensor " + tensor.name + " lies past the end of the file; it is cut short, fetch it again");
        }
        index.push_back(std::move(tensor));
    }
    paths.push_back(path);
    contexts.push_back(std::move(context));
}

bool GgufFile::has_tensor(const std::string & name) const {
    return std::any_of(index.begin(), index.end(), [&](const GgufTensor & tensor) { return tensor.name == name; });
}

std::string GgufFile::text(const std::string & key) const {
    const int64_t id = gguf_find_key(contexts[0].get(), key.c_str());
    if (id < 0 || gguf_get_kv_type(contexts[0].get(), id) != GGUF_TYPE_STRING) {
        broken(paths[0], "has no text under " + key);
    }
    return gguf_get_val_str(contexts[0].get(), id);
}

std::optional<std::vector<uint32_t>> GgufFile::find_numbers(const std::string & key) const {
    const gguf_context * context = contexts[0].get();
    const int64_t        id      = gguf_find_key(context, key.c_str());
    if (id < 0) {
        return std::nullopt;
    }

    const bool   is_array = gguf_get_kv_type(context, id) == GGUF_TYPE_ARRAY;
    const auto   type     = is_array ? gguf_get_arr_type(context, id) : gguf_get_kv_type(context, id);
    const size_t n        = is_array ? gguf_get_arr_n(context, id) : 1;
    if (type == GGUF_TYPE_STRING) {
        broken(paths[0], "has no numbers under " + key);
    }
    const void * data = is_array ? gguf_get_arr_data(context, id) : gguf_get_val_data(context, id);

    std::vector<uint32_t> values;
    for (size_t i = 0; i < n; i++) {
        const auto value = integer_at(type, data, i);
        if (!value) {
            broken(paths[0], "has something else than whole numbers of 32 bits under " + key);
        }
        values.push_back(*value);
    }
    return values;
}

std::vector<uint32_t> GgufFile::numbers(const std::string & key) const {
    auto values = find_numbers(key);
    if (!values || values->empty()) {
        broken(paths[0], "has nothing under " + key);
    }
    return *values;
}

uint32_t GgufFile::number(const std::string & key) const {
    return numbers(key)[0];
}

uint32_t GgufFile::number(const std::string & key, uint32_t otherwise) const {
    const auto values = find_numbers(key);
    return values && !values->empty() ? (*values)[0] : otherwise;
}

uint64_t GgufFile::array_size(const std::string & key) const {
    const int64_t id = gguf_find_key(contexts[0].get(), key.c_str());
    if (id < 0 || gguf_get_kv_type(contexts[0].get(), id) != GGUF_TYPE_ARRAY) {
        return 0;
    }
    return gguf_get_arr_n(contexts[0].get(), id);
}

bool GgufFile::distinct_texts(const std::string & key) const {
    const gguf_context * context = contexts[0].get();
    const int64_t        id      = gguf_find_key(context, key.c_str());
    if (id < 0 || gguf_get_kv_type(context, id) != GGUF_TYPE_ARRAY ||
        gguf_get_arr_type(context, id) != GGUF_TYPE_STRING) {
        return false;
    }
    std::unordered_set<std::string_view> seen;
    for (size_t i = 0; i < gguf_get_arr_n(context, id); i++) {
        if (!seen.insert(gguf_get_arr_str(context, id, i)).second) {
            return false;
        }
    }
    return true;
}

bool is_own_tensor(const std::string & name, const LayerRange & range, uint32_t n_layer, bool tied_output) {
    const bool is_head = range.first == 0;
    const bool is_tail = range.last == n_layer;

    if (name.rfind("blk.", 0) == 0) {
        const auto layer = static_cast<uint32_t>(std::strtoul(name.c_str() + 4, nullptr, 10));
        return layer >= n_layer ? is_tail : layer >= range.first && layer < range.last;
    }
    if (name.rfind("token_embd", 0) == 0) {
        return is_head || (is_tail && tied_output);
    }
    // rope factors have no layer number and are used by every layer
    return name.rfind("rope_", 0) == 0 || is_tail;
}

}  // namespace dgr
