#include "devices.h"

#include "dgr/shard-engine.h"

namespace dgr {

bool is_cpu(ggml_backend_dev_t device) {
    return ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU && backend_name(device) == "CPU";
}

std::string backend_name(ggml_backend_dev_t device) {
    return ggml_backend_reg_name(ggml_backend_dev_backend_reg(device));
}

std::string describe_device(ggml_backend_dev_t device) {
    return std::string(ggml_backend_dev_name(device)) + ": " + ggml_backend_dev_description(device);
}

std::vector<std::string> list_devices() {
    std::vector<std::string> lines;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        lines.push_back(describe_device(ggml_backend_dev_get(i)));
    }
    return lines;
}

static ggml_backend_dev_t first_accelerator() {
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        const ggml_backend_dev_t device = ggml_backend_dev_get(i);
        if (!is_cpu(device) && ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_ACCEL) {
            return device;
        }
    }
    return nullptr;
}

static bool has_accelerator_backend() {
    for (size_t i = 0; i < ggml_backend_reg_count(); ++i) {
        if (std::string(ggml_backend_reg_name(ggml_backend_reg_get(i))) != "CPU") {
            return true;
        }
    }
    return false;
}

ggml_backend_dev_t find_device(const std::string & name) {
    ggml_backend_dev_t found = nullptr;
    if (name != "auto") {
        found = ggml_backend_dev_by_name(name.c_str());
    } else if (has_accelerator_backend()) {
        found = first_accelerator();
    } else {
        found = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    }
    if (found == nullptr) {
        std::string known;
        for (const std::string & line : list_devices()) {
            known += (known.empty() ? "" : "; ") + line;
        }
        throw StartError(StartError::Kind::settings,
                         name == "auto" ? "this build is for a device that is not here; there are " + known +
                                              "; name one with --device to compute on it all the same"
                                        : "there is no device " + name + "; there are " + known);
    }
    return found;
}

}  // namespace dgr
