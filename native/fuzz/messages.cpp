// Fuzz target: every message of the wire contract, as arbitrary bytes and as a valid one that was changed, given to
// the code that reads it. Nothing may end the process, and what is refused touches nothing.

#include "input.h"
#include "mutate.h"
#include "require.h"
#include "rpc/compatibility.h"
#include "rpc/service.h"
#include "rpc/status.h"
#include "session/crc32c.h"
#include "session/frame-check.h"
#include "world.h"

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/test/default_reactor_test_peer.h>

namespace dgr::fuzz {

namespace {

using google::protobuf::Message;

const std::string ID = "one";

// Bytes in the place of the message or after it, or a change here and there.
template <class Sent>
Sent spoilt(const Sent & valid, Input & input) {
    Sent message = valid;
    switch (input.below(3)) {
        case 0:
            mutate(message, input);
            break;
        case 1: {
            const std::string bytes = valid.SerializeAsString() + input.rest();  // fields that come again replace or merge
            Sent read;
            return read.ParseFromString(bytes) ? read : message;
        }
        default: {
            Sent read;
            return read.ParseFromString(input.rest()) ? read : message;
        }
    }
    return message;
}

// What one worker would make of the call; its reactor is gRPC's own, in its test mode.
template <class Request, class Response>
grpc::Status call(World & world, grpc::ServerUnaryReactor * (ShardService::*method)(grpc::CallbackServerContext *, const Request *, Response *),
                  const Request & request, Response & response) {
    ShardService service(world.entry().stage);
    grpc::CallbackServerContext context;
    grpc::Status status(grpc::StatusCode::UNKNOWN, "never finished");
    int ends = 0;
    grpc::testing::DefaultReactorTestPeer peer(&context, [&](const grpc::Status & said) {
        status = said;
        ++ends;
    });
    (service.*method)(&context, &request, &response);
    world.settle();
    require(ends == 1, "a call ended " + std::to_string(ends) + " times");
    return status;
}

void check_typed(const grpc::Status & status) {
    if (status.ok() || status.error_details().empty()) {
        return;
    }
    wire::RpcStatus outer;
    require(outer.ParseFromString(status.error_details()) && outer.details_size() == 1, "a refusal has no readable detail");
}

void any_message(Input & input) {
    const google::protobuf::FileDescriptor & file = *wire::Frame::descriptor()->file();
    const auto & about = *file.message_type(static_cast<int>(input.below(static_cast<uint32_t>(file.message_type_count()))));
    auto & factory = *google::protobuf::MessageFactory::generated_factory();
    const std::unique_ptr<Message> message(factory.GetPrototype(&about)->New());
    if (message->ParseFromString(input.rest())) {
        const std::unique_ptr<Message> again(message->New());
        require(again->ParseFromString(message->SerializeAsString()), "a message cannot be read back");
    }
}

void open_session(Input & input) {
    World world(static_cast<Shape>(input.below(N_SHAPES)));
    const bool end = world.entry().about().range().last() == world.entry().about().artifact().n_layer();
    const uint64_t epoch   = 1 + input.byte();  // compilers evaluate arguments in different orders
    const bool     chain   = input.one_in(2);
    auto           opening = world.open_request(0, ID, epoch, chain, input.byte());
    const auto     request = spoilt(std::move(opening), input);
    wire::OpenSessionResponse response;
    grpc::Status status;
    if (end && !request.has_successor()) {
        status = call(world, &ShardService::OpenSession, request, response);
    } else {
        status = world.open(0, request, &response);
        check_typed(check_successor(request, world.entry().about(), spoilt(world.after(0), input)));
    }
    check_typed(status);
    uint32_t used = 0;
    for (const auto & position : world.entry().positions()) {
        used += position.has_value() ? 1 : 0;
    }
    require(used == (status.ok() ? 1 : 0), "a slot is taken for a session that was refused, or none for one that was not");
    world.finish();
}

void close_session(Input & input) {
    World world(Shape::whole);
    require(world.open(0, world.open_request(0, ID, 2, false, 8)).ok(), "a good session is refused");
    wire::CloseSessionRequest valid;
    valid.set_session(ID);
    valid.set_epoch(2);
    valid.set_key(key_of(ID));
    wire::CloseSessionResponse response;
    const auto request = spoilt(valid, input);
    call(world, &ShardService::CloseSession, request, response);
    const bool open = world.entry().positions()[0].has_value();
    const bool fits = request.session() == ID && request.epoch() == 2 && request.key() == key_of(ID);
    require(open != response.closed() && response.closed() == fits, "a session is closed by a request that does not name it, or not by one that does");
    world.finish();
}

wire::Frame valid_frame(const World & world, Input & input) {
    const FakeSettings & settings = world.nodes.front()->settings;
    wire::Frame frame;
    const uint32_t rows = 1 + input.below(settings.n_ubatch);
    for (uint32_t i = 0; i < rows; ++i) {
        frame.add_token_ids(static_cast<int32_t>(input.below(settings.n_vocab)));
    }
    const Digest before = prefix_start(digest_from_hex(world.nodes.front()->about().artifact().digest()));
    frame.set_prefix_hash_before(std::string(as_bytes(before)));
    frame.set_prefix_hash_after(std::string(as_bytes(prefix_next(before, frame.token_ids().data(), rows))));
    if (settings.range.first != 0) {
        const std::string data(size_t{rows} * settings.width * sizeof(float), '\0');
        wire::Boundary & boundary = *frame.mutable_boundary();
        boundary.set_dtype(wire::DTYPE_F32);
        boundary.set_rows(rows);
        boundary.set_width(settings.width);
        boundary.set_data(data);
        boundary.set_checksum(crc32c(data.data(), data.size()));
    }
    return frame;
}

// The checks alone, against a session that stands anywhere.
void check_frame_alone(Input & input) {
    const FrameRules rules{input.one_in(2), input.one_in(2), 1 + input.below(8), 1 + input.below(32), input.below(8)};
    Session session;
    session.n_ctx         = input.below(64);
    session.next_position = session.n_ctx == 0 ? 0 : input.below(session.n_ctx + 1);
    session.next_sequence = input.below(8);
    World world(input.one_in(2) ? Shape::tail_alone : Shape::whole);
    wire::Frame valid = valid_frame(world, input);
    session.prefix = prefix_start(digest_from_hex(world.entry().about().artifact().digest()));
    const uint32_t kept = input.below(static_cast<uint32_t>(session.next_sequence) + 1);
    for (uint32_t i = 0; i < kept; ++i) {
        KeptAnswer answer;
        answer.sequence    = session.next_sequence - kept + i;
        answer.hash_before = session.prefix;
        answer.hash_after  = input.one_in(2) ? prefix_next(session.prefix, valid.token_ids().data(), static_cast<uint32_t>(valid.token_ids_size())) : session.prefix;
        session.kept.push_back(answer);
    }
    valid.set_sequence(input.below(8));
    valid.set_first_position(session.next_position);
    const wire::Frame frame = spoilt(valid, input);
    const FrameOutcome outcome = check_frame(frame, session, rules);
    if (outcome.verdict == FrameVerdict::run) {
        const auto rows = static_cast<uint32_t>(frame.token_ids_size());
        require(rows >= 1 && rows <= rules.max_rows, "a frame of too many rows passes");
        require(uint64_t{session.next_position} + rows <= session.n_ctx, "a frame beyond the session's end passes");
        require(frame.has_boundary() != rules.is_head, "a frame passes without the boundary, or with one on the head");
        require(rules.is_head || frame.boundary().data().size() == uint64_t{rows} * rules.width * sizeof(float), "a boundary of another size passes");
        for (const int32_t id : frame.token_ids()) {
            require(id >= 0 && static_cast<uint32_t>(id) < rules.n_vocab, "an id that is no token passes");
        }
    }
    require(outcome.verdict != FrameVerdict::rejected || (!outcome.field.empty() && !outcome.legal.empty()), "a rejection names no field");
    world.finish();
}

void execute(Input & input) {
    World world(static_cast<Shape>(input.below(N_SHAPES)));
    for (size_t node = world.nodes.size(); node-- > 0;) {
        require(world.open(node, world.open_request(node, ID, 1, input.one_in(2), 8)).ok(), "a good session is refused");
    }
    ExecuteCall & stream = world.execute(0);
    stream.on_end = check_typed;
    const uint32_t bad = input.below(3);
    wire::ExecuteRequest hello = world.hello(0, ID, 1);
    stream.send(bad == 0 ? spoilt(hello, input) : hello);
    wire::ExecuteRequest frame;
    frame.set_session(ID);
    frame.set_epoch(1);
    *frame.mutable_frame() = valid_frame(world, input);
    stream.send(bad == 1 ? spoilt(frame, input) : frame);
    world.settle();
    for (NextCall * next : world.played) {
        wire::ExecuteResponse valid;
        valid.set_session(ID);
        valid.set_epoch(1);
        valid.mutable_executed()->set_sequence(0);
        next->respond(spoilt(valid, input));
        world.settle();
        stream.on_end = nullptr;  // what the next stage says of its end is passed on unchanged, whatever it is
        wire::RpcStatus detail;
        detail.set_code(grpc::StatusCode::INTERNAL);
        detail.add_details()->PackFrom(wire::Failure());
        next->end({static_cast<grpc::StatusCode>(input.below(20)), input.bytes(16), spoilt(detail, input).SerializeAsString()});
        world.settle();
    }
    world.finish();
}

void results(Input & input) {
    World world(Shape::whole);
    require(world.open(0, world.open_request(0, ID, 1, false, 8)).ok(), "a good session is refused");
    wire::ResultsRequest valid;
    valid.set_session(ID);
    valid.set_epoch(1);
    valid.set_key(key_of(ID));
    world.results(0, spoilt(valid, input)).on_end = check_typed;
    world.settle();
    world.finish();
}

void text(Input & input) {
    World world(Shape::whole);
    wire::TokenizeRequest tokenize;
    tokenize.set_text("text");
    wire::TokenizeResponse ids;
    check_typed(call(world, &ShardService::Tokenize, spoilt(tokenize, input), ids));
    wire::DetokenizeRequest detokenize;
    detokenize.add_token_ids(1);
    wire::DetokenizeResponse back;
    check_typed(call(world, &ShardService::Detokenize, spoilt(detokenize, input), back));
    world.finish();
}

void ask(Input & input) {
    World world(Shape::whole);
    wire::DescribeResponse about;
    require(call(world, &ShardService::Describe, spoilt(wire::DescribeRequest(), input), about).ok(), "Describe fails");
    wire::StatusResponse status;
    require(call(world, &ShardService::Status, spoilt(wire::StatusRequest(), input), status).ok(), "Status fails");
    world.finish();
}

}  // namespace

}  // namespace dgr::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    using namespace dgr::fuzz;
    static const auto loud = google::protobuf::SetLogHandler(nullptr);  // it tells of every text that is not UTF-8
    static_cast<void>(loud);
    Input input(data, size);
    switch (input.below(9)) {
        case 0: any_message(input); break;
        case 1: open_session(input); break;
        case 2: close_session(input); break;
        case 3:
        case 4: check_frame_alone(input); break;
        case 5: execute(input); break;
        case 6: results(input); break;
        case 7: text(input); break;
        default: ask(input); break;
    }
    return 0;
}
