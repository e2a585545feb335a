// The rules of a frame, checked before upstream sees it: some of what they refuse would end the process there.

#pragma once

#include "dgr/shard-engine.h"

#include "llama-engine.h"
#include "slot-table.h"

namespace dgr {

// Throws InvalidFrame naming the field.
void check_token_id(int32_t id, uint32_t n_vocab);

// Throws InvalidFrame naming the field, or EngineFailure when the slot has failed before.
void check_engine_frame(const EngineFrame & frame, const Slot & slot, const EngineDescription & description,
                        const LlamaEngineParams & params);

// What joins frames that are each in order: throws InvalidFrame naming the field.
void check_joined(const EngineFrame * frames, size_t n, const SlotTable & slots, uint32_t n_ubatch);

}  // namespace dgr
