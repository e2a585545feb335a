// What a worker computes on: the devices that the backends of this build find on this machine.

#pragma once

#include "ggml-backend.h"

#include <string>
#include <vector>

namespace dgr {

// One line a device: its name, and what its driver calls it.
std::vector<std::string> list_devices();

// The device of this name. "auto" is the first device of the build's own accelerator, or the CPU in a build that
// has none: a build for a GPU never falls back to the CPU by itself.
// Throws StartError (settings) that names the devices there are.
ggml_backend_dev_t find_device(const std::string & name);

// Nothing needs to be moved to it, and it has no driver of its own.
bool is_cpu(ggml_backend_dev_t device);

// The name of the device's backend, as upstream has it: CPU, CUDA, ROCm, Vulkan, MTL.
std::string backend_name(ggml_backend_dev_t device);

std::string describe_device(ggml_backend_dev_t device);

}  // namespace dgr
