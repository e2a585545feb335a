#include "mutate.h"

#include <google/protobuf/descriptor.h>

#include <limits>

namespace dgr::fuzz {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr uint32_t MAX_BYTES = 80;  // a little more than any id, key or hash

// Near the value that is there, at an end of the type, or anything.
uint64_t other_number(uint64_t now, Input & input) {
    switch (input.below(6)) {
        case 0: return 0;
        case 1: return now + 1;
        case 2: return now - 1;
        case 3: return std::numeric_limits<uint64_t>::max() >> input.below(64);
        case 4: return input.byte();
        default: return input.number64();
    }
}

std::string other_text(std::string now, Input & input) {
    switch (input.below(4)) {
        case 0: return "";
        case 1: return input.bytes(input.below(MAX_BYTES));
        case 2:
            if (!now.empty()) {
                now[input.below(static_cast<uint32_t>(now.size()))] ^= static_cast<char>(1 + input.below(255));
            }
            return now;
        default: {
            const uint32_t size = input.below(2 * MAX_BYTES);  // compilers evaluate arguments in different orders
            now.resize(size, static_cast<char>(input.byte()));
            return now;
        }
    }
}

std::string as_utf8(std::string text) {
    for (char & c : text) {
        c = static_cast<char>(c & 0x7f);  // proto3 parsers refuse strings that are not UTF-8
    }
    return text;
}

void change(Message & message, const FieldDescriptor & field, Input & input);

void change_repeated(Message & message, const FieldDescriptor & field, Input & input) {
    const Reflection & of = *message.GetReflection();
    const int n = of.FieldSize(message, &field);
    if (n > 0 && input.one_in(3)) {
        of.RemoveLast(&message, &field);
        return;
    }
    if (n > 1 && input.one_in(3)) {
        of.SwapElements(&message, &field, 0, n - 1);
        return;
    }
    const uint32_t more = 1 + input.below(input.one_in(8) ? 64 : 3);
    for (uint32_t i = 0; i < more; ++i) {
        switch (field.cpp_type()) {
            case FieldDescriptor::CPPTYPE_INT32: of.AddInt32(&message, &field, static_cast<int32_t>(other_number(1, input))); break;
            case FieldDescriptor::CPPTYPE_UINT32: of.AddUInt32(&message, &field, static_cast<uint32_t>(other_number(1, input))); break;
            case FieldDescriptor::CPPTYPE_STRING: of.AddString(&message, &field, as_utf8(other_text("", input))); break;
            case FieldDescriptor::CPPTYPE_MESSAGE: mutate(*of.AddMessage(&message, &field), input); break;
            default: return;  // the contract repeats nothing else
        }
    }
}

void change_one(Message & message, const FieldDescriptor & field, Input & input) {
    const Reflection & of = *message.GetReflection();
    switch (field.cpp_type()) {
        case FieldDescriptor::CPPTYPE_INT32:
            of.SetInt32(&message, &field, static_cast<int32_t>(other_number(of.GetInt32(message, &field), input)));
            break;
        case FieldDescriptor::CPPTYPE_UINT32:
            of.SetUInt32(&message, &field, static_cast<uint32_t>(other_number(of.GetUInt32(message, &field), input)));
            break;
        case FieldDescriptor::CPPTYPE_INT64:
            of.SetInt64(&message, &field, static_cast<int64_t>(other_number(of.GetInt64(message, &field), input)));
            break;
        case FieldDescriptor::CPPTYPE_UINT64:
            of.SetUInt64(&message, &field, other_number(of.GetUInt64(message, &field), input));
            break;
        case FieldDescriptor::CPPTYPE_FLOAT: {
            const uint32_t bits = input.number32();
            float value = 0;
            std::memcpy(&value, &bits, sizeof(value));
            of.SetFloat(&message, &field, value);
            break;
        }
        case FieldDescriptor::CPPTYPE_DOUBLE: {
            const uint64_t bits = input.number64();
            double value = 0;
            std::memcpy(&value, &bits, sizeof(value));
            of.SetDouble(&message, &field, value);
            break;
        }
        case FieldDescriptor::CPPTYPE_BOOL:
            of.SetBool(&message, &field, !of.GetBool(message, &field));
            break;
        case FieldDescriptor::CPPTYPE_ENUM:
            of.SetEnumValue(&message, &field, static_cast<int>(other_number(of.GetEnumValue(message, &field), input)));
            break;
        case FieldDescriptor::CPPTYPE_STRING: {
            const std::string text = other_text(of.GetString(message, &field), input);
            of.SetString(&message, &field, field.type() == FieldDescriptor::TYPE_STRING ? as_utf8(text) : text);
            break;
        }
        case FieldDescriptor::CPPTYPE_MESSAGE:
            if (input.one_in(4)) {
                of.ClearField(&message, &field);
            } else {
                mutate(*of.MutableMessage(&message, &field), input);
            }
            break;
    }
}

void change(Message & message, const FieldDescriptor & field, Input & input) {
    if (field.is_repeated()) {
        change_repeated(message, field, input);
    } else {
        change_one(message, field, input);
    }
}

}  // namespace

void mutate(Message & message, Input & input) {
    const google::protobuf::Descriptor & about = *message.GetDescriptor();
    if (about.field_count() == 0 || input.empty()) {
        return;
    }
    const uint32_t n = 1 + input.below(3);
    for (uint32_t i = 0; i < n; ++i) {
        change(message, *about.field(static_cast<int>(input.below(static_cast<uint32_t>(about.field_count())))), input);
    }
}

}  // namespace dgr::fuzz
