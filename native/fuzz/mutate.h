// Changes a message of the wire contract field by field, so that what is wrong with it is small and deep inside.

#pragma once

#include "input.h"

#include <google/protobuf/message.h>

namespace dgr::fuzz {

// Changes one to three fields, at any depth.
void mutate(google::protobuf::Message & message, Input & input);

}  // namespace dgr::fuzz
