#include "client.h"

#include "mutate.h"
#include "require.h"
#include "rpc/status.h"
#include "session/crc32c.h"

namespace dgr::fuzz {

namespace {

constexpr uint32_t N_IDS = 3;  // one more than there are slots

bool same_content(const wire::Frame & a, const wire::Frame & b) {
    return a.prefix_hash_after() == b.prefix_hash_after() && a.prefix_hash_before() == b.prefix_hash_before()
        && a.boundary().checksum() == b.boundary().checksum();
}

// What the whole engine says to frame `sequence` of these.
wire::Result expected(const FakeSettings & given, const std::vector<wire::Frame> & frames, size_t sequence) {
    FakeSettings settings = given;
    settings.range = {0, settings.n_layer};
    FakeEngine engine(settings, std::make_shared<FakeEngine::Knobs>());
    const auto slot = static_cast<uint32_t>(engine.open(settings.n_ctx));
    wire::Result result;
    for (size_t i = 0; i <= sequence; ++i) {
        const wire::Frame & frame = frames[i];
        EngineFrame in;
        in.slot           = slot;
        in.first_position = engine.position(slot);
        in.n_rows         = static_cast<uint32_t>(frame.token_ids_size());
        in.token_ids      = frame.token_ids().data();
        in.want_token     = frame.want_token();
        in.want_logits    = static_cast<LogitsWanted>(frame.want_logits());
        const EngineOutput output = engine.execute(in);
        result.Clear();
        result.set_first_position(in.first_position);
        result.set_token(in.want_token ? output.token : 0);
        result.set_logits(output.logits.data(), output.logits.size() * sizeof(float));
        result.set_logits_rows(output.logits_rows);
    }
    return result;
}

}  // namespace

uint32_t Conversation::rows() const {
    uint32_t sum = 0;
    for (const wire::Frame & frame : accepted) {
        sum += static_cast<uint32_t>(frame.token_ids_size());
    }
    return sum;
}

Client::Client(World & world, Input & input) : world_(world), input_(input) {
    world_.on_played = [this](NextCall & next) { play(next); };
}

std::string Client::some_id() {
    return std::string("s") + static_cast<char>('0' + input_.below(N_IDS));
}

Conversation * Client::find(const std::string & id, uint64_t epoch) {
    const auto found = conversations_.find(id);
    return found == conversations_.end() || found->second.epoch != epoch ? nullptr : &found->second;
}

Stream * Client::some_stream() {
    return streams_.empty() ? nullptr : streams_[streams_.size() - 1 - input_.below(static_cast<uint32_t>(std::min<size_t>(streams_.size(), 4)))].get();
}

void Client::open() {
    const std::string id = some_id();
    const auto known = conversations_.find(id);
    const uint64_t now = known == conversations_.end() ? 0 : known->second.epoch;
    const uint64_t epoch = input_.one_in(5) ? (input_.one_in(2) ? now : input_.number64()) : now + 1;
    const bool     chain = input_.one_in(2);
    const uint32_t n_ctx = input_.one_in(6) ? input_.below(64) : world_.entry().settings.n_ctx - input_.below(4);
    const bool     some  = input_.one_in(8);  // on some stages only
    const auto     used  = highest_;
    for (size_t node = world_.nodes.size(); node-- > 0;) {
        if (some && input_.one_in(2)) {
            continue;
        }
        wire::OpenSessionRequest request = world_.open_request(node, id, epoch, chain, n_ctx);
        if (input_.one_in(10)) {
            mutate(request, input_);
        }
        highest_[request.session()] = std::max(highest_[request.session()], request.epoch());
        const auto before = world_.nodes[node]->positions();
        wire::OpenSessionResponse response;
        const grpc::Status status = world_.open(node, request, &response);
        if (!status.ok()) {
            require(world_.nodes[node]->positions() == before, "a session that was refused touched another: " + status.error_message());
            continue;
        }
        if (node == 0) {
            // The slot was somebody else's before; that one is gone, or it would still have it.
            for (auto & [name, other] : conversations_) {
                other.gone = other.gone || other.slot == response.slot();
            }
            Conversation fresh;
            fresh.epoch = request.epoch();
            fresh.chain = request.results_chain();
            fresh.slot  = response.slot();
            fresh.key   = request.key();
            const auto was = used.find(request.session());
            fresh.trusted = was == used.end() || request.epoch() > was->second;
            conversations_[request.session()] = fresh;
        }
    }
}

void Client::hello() {
    const std::string id = some_id();
    const auto known = conversations_.find(id);
    const uint64_t epoch = known == conversations_.end() ? 1 : known->second.epoch;
    wire::ExecuteRequest request = world_.hello(0, id, epoch);
    const bool spoilt = input_.one_in(8);
    if (spoilt) {
        mutate(request, input_);
    }
    streams_.push_back(std::make_unique<Stream>());
    Stream & stream = *streams_.back();
    stream.call  = &world_.execute(0);
    stream.id    = request.session();
    stream.epoch = request.epoch();
    stream.closed = spoilt;  // whether it was accepted is the stage's word
    stream.call->on_response = [this, &stream](const wire::ExecuteResponse & response) { answered(stream, response); };
    stream.call->on_end      = [this, &stream](const grpc::Status & status) { ended(stream, status); };
    stream.call->send(request);
    world_.settle();
    if (spoilt) {
        stream.call->cancel();
        world_.settle();
        for (const auto & other : streams_) {
            lose(*other);  // it may have taken their place
        }
        return;
    }
    for (const auto & other : streams_) {
        if (other.get() != &stream && other->id == stream.id) {
            lose(*other);
        }
    }
}

void Client::fill(wire::Frame & frame, uint32_t rows) {
    for (uint32_t i = 0; i < rows; ++i) {
        frame.add_token_ids(static_cast<int32_t>(input_.below(world_.entry().settings.n_vocab)));
    }
    frame.set_want_token(input_.one_in(2));
    frame.set_want_logits(static_cast<wire::Logits>(input_.below(3)));
    frame.set_remaining_ms(input_.one_in(24) ? input_.byte() : 0);
    if (world_.entry().about().range().first() != 0) {
        std::vector<float> values(rows * world_.entry().settings.width);
        for (float & value : values) {
            value = static_cast<float>(input_.byte());
        }
        wire::Boundary & boundary = *frame.mutable_boundary();
        boundary.set_dtype(wire::DTYPE_F32);
        boundary.set_rows(rows);
        boundary.set_width(world_.entry().settings.width);
        boundary.set_data(values.data(), values.size() * sizeof(float));
        boundary.set_checksum(crc32c(values.data(), values.size() * sizeof(float)));
    }
}

// Those that the stage has said it executed, then those on their way.
std::vector<wire::Frame> Client::known_frames(const std::string & id, uint64_t epoch) {
    std::vector<wire::Frame> frames;
    if (const Conversation * conversation = find(id, epoch)) {
        frames = conversation->accepted;
    }
    for (const auto & stream : streams_) {
        if (!stream->closed && stream->id == id && stream->epoch == epoch) {
            for (const wire::Frame & frame : stream->pending) {
                if (frame.sequence() == frames.size()) {
                    frames.push_back(frame);
                }
            }
        }
    }
    return frames;
}

wire::ExecuteRequest Client::next_frame(const Stream & stream, const std::vector<wire::Frame> & before) {
    wire::ExecuteRequest request;
    request.set_session(stream.id);
    request.set_epoch(stream.epoch);
    wire::Frame & frame = *request.mutable_frame();
    frame.set_sequence(before.size());
    fill(frame, 1 + input_.below(world_.entry().settings.n_ubatch));
    uint32_t position = 0;
    for (const wire::Frame & one : before) {
        position += static_cast<uint32_t>(one.token_ids_size());
    }
    frame.set_first_position(position);
    Digest prefix = prefix_start(digest_from_hex(world_.entry().about().artifact().digest()));
    if (!before.empty()) {
        std::copy(before.back().prefix_hash_after().begin(), before.back().prefix_hash_after().end(), prefix.begin());
    }
    frame.set_prefix_hash_before(std::string(as_bytes(prefix)));
    frame.set_prefix_hash_after(
        std::string(as_bytes(prefix_next(prefix, frame.token_ids().data(), static_cast<uint32_t>(frame.token_ids_size())))));
    return request;
}

void Client::send(Stream & stream, const wire::ExecuteRequest & request) {
    if (!stream.ended && !stream.closed && !stream.call->is_half_closed()) {
        stream.pending.push_back(request.frame());
        stream.call->send(request);
    }
}

void Client::frame() {
    if (Stream * stream = some_stream()) {
        send(*stream, next_frame(*stream, known_frames(stream->id, stream->epoch)));
    }
}

void Client::repeat() {
    Stream * stream = some_stream();
    const auto frames = stream == nullptr ? std::vector<wire::Frame>() : known_frames(stream->id, stream->epoch);
    if (frames.empty()) {
        return;
    }
    wire::ExecuteRequest request;
    request.set_session(stream->id);
    request.set_epoch(stream->epoch);
    *request.mutable_frame() = frames[frames.size() - 1 - input_.below(static_cast<uint32_t>(std::min<size_t>(frames.size(), 8)))];
    send(*stream, request);
}

void Client::spoilt_frame() {
    if (Stream * stream = some_stream()) {
        wire::ExecuteRequest request = next_frame(*stream, known_frames(stream->id, stream->epoch));
        if (input_.one_in(4)) {
            mutate(request, input_);
        } else {
            mutate(*request.mutable_frame(), input_);
        }
        send(*stream, request);
    }
}

void Client::conflicting_frame() {
    Stream * stream = some_stream();
    auto frames = stream == nullptr ? std::vector<wire::Frame>() : known_frames(stream->id, stream->epoch);
    if (frames.empty()) {
        return;
    }
    frames.resize(input_.below(static_cast<uint32_t>(frames.size())));
    send(*stream, next_frame(*stream, frames));
}

void Client::half_close() {
    if (Stream * stream = some_stream()) {
        stream->call->half_close();
    }
}

void Client::cancel() {
    if (Stream * stream = some_stream()) {
        stream->call->cancel();
        world_.settle();
        lose(*stream);
    }
}

void Client::close() {
    const std::string id = some_id();
    const auto known = conversations_.find(id);
    wire::CloseSessionRequest request;
    request.set_session(id);
    request.set_epoch(known == conversations_.end() ? 1 : known->second.epoch);
    request.set_key(key_of(id));
    if (input_.one_in(4)) {
        mutate(request, input_);
    }
    const size_t first = input_.one_in(4) ? input_.below(static_cast<uint32_t>(world_.nodes.size())) : 0;
    for (size_t node = first; node < world_.nodes.size(); ++node) {
        wire::CloseSessionResponse response;
        Node & on = *world_.nodes[node];
        on.run([&] { on.stage->close(request, response); });
        if (node == 0 && response.closed()) {
            conversations_[request.session()].gone = true;
        }
    }
}

void Client::attach() {
    const std::string id = some_id();
    const auto known = conversations_.find(id);
    wire::ResultsRequest request;
    request.set_session(id);
    request.set_epoch(known == conversations_.end() ? 1 : known->second.epoch);
    request.set_key(key_of(id));
    request.set_from_sequence(input_.one_in(3) ? input_.below(8) : 0);
    if (input_.one_in(8)) {
        mutate(request, input_);
    }
    const size_t node = input_.one_in(6) ? 0 : world_.nodes.size() - 1;
    ResultsCall & call = world_.results(node, request);
    call.on_response = [this, request](const wire::ResultsResponse & response) {
        require(response.session() == request.session() && response.epoch() == request.epoch(), "results of another session");
        if (response.has_result()) {
            require(response.result().sequence() >= request.from_sequence(), "a result from before what was asked for");
            check_result(response.session(), response.epoch(), response.result());
        }
    };
}

void Client::leave_results() {
    if (!world_.all_results.empty()) {
        world_.all_results[input_.below(static_cast<uint32_t>(world_.all_results.size()))]->cancel();
    }
}

void Client::stall() {
    switch (input_.below(3)) {
        case 0:
            if (!world_.executes.empty()) {
                auto & call = *world_.executes[input_.below(static_cast<uint32_t>(world_.executes.size()))];
                call.stalled = !call.stalled;
            }
            break;
        case 1:
            if (!world_.all_results.empty()) {
                auto & call = *world_.all_results[input_.below(static_cast<uint32_t>(world_.all_results.size()))];
                call.stalled = !call.stalled;
            }
            break;
        default:
            if (!world_.nexts.empty()) {
                auto & call = *world_.nexts[input_.below(static_cast<uint32_t>(world_.nexts.size()))];
                call.stalled = !call.stalled;
            }
    }
}

// A connection breaks: writes fail first, gRPC says cancelled soon after.
void Client::break_writes() {
    if (Stream * stream = some_stream()) {
        stream->call->broken = true;
        world_.settle();
        stream->call->cancel();
        world_.settle();
        lose(*stream);
    }
}

void Client::fail_engine() {
    failed_ = true;
    auto & fail = world_.nodes[input_.below(static_cast<uint32_t>(world_.nodes.size()))]->knobs->fail;
    fail = !fail;
}

void Client::drain() {
    Node & node = *world_.nodes[input_.below(static_cast<uint32_t>(world_.nodes.size()))];
    drained_ = true;
    node.stage->refuse_new_work();
    if (input_.one_in(2)) {
        node.run([&] { node.stage->end_all(); });
    }
}

// The run plays the next stage: it may answer anything.
void Client::play_next() {
    if (world_.played.empty()) {
        return;
    }
    NextCall & next = *world_.played[world_.played.size() - 1 - input_.below(static_cast<uint32_t>(std::min<size_t>(world_.played.size(), 3)))];
    const auto & received = played_[&next];
    wire::ExecuteResponse response;
    if (!received.empty()) {
        response.set_session(received.front().session());
        response.set_epoch(received.front().epoch());
    }
    switch (input_.below(8)) {
        case 0:
        case 1:
        case 2:
            response.mutable_executed()->set_sequence(received.empty() ? 0 : received.back().frame().sequence());
            next.respond(response);
            break;
        case 3:
            response.mutable_executed()->set_sequence(input_.one_in(2) ? input_.below(8) : input_.number64());
            next.respond(response);
            break;
        case 4:
            response.mutable_result()->set_sequence(input_.below(8));
            mutate(*response.mutable_result(), input_);
            next.respond(response);
            break;
        case 5:
            mutate(response, input_);
            next.respond(response);
            break;
        case 6: {
            if (input_.one_in(2)) {
                next.end(grpc::Status::OK);
                break;
            }
            // One after the other: compilers evaluate arguments in different orders, and an input must mean the same.
            const auto        code    = static_cast<grpc::StatusCode>(input_.below(20));
            const std::string message = input_.bytes(8);
            const uint32_t    length  = input_.below(32);
            next.end(grpc::Status(code, message, input_.bytes(length)));
            break;
        }
        default:
            next.broken = true;
    }
}

void Client::play(NextCall & next) {
    next.on_request = [this, here = &next](const wire::ExecuteRequest & request) {
        auto & received = played_[here];
        if (received.empty()) {
            require(request.has_hello() && request.hello().sender().instance() == world_.entry().about().instance(),
                "a stream to the next stage without a hello");
            received.push_back(request);
            return;
        }
        require(request.has_frame(), "something else than a frame after the hello");
        require(request.session() == received.front().session() && request.epoch() == received.front().epoch(),
            "a frame of another session on a stream to the next stage");
        const wire::Frame & frame = request.frame();
        const std::string & data = frame.boundary().data();
        require(crc32c(data.data(), data.size()) == frame.boundary().checksum(), "the checksum of an outgoing boundary is wrong");
        for (size_t i = 1; i < received.size(); ++i) {
            if (received[i].frame().sequence() == frame.sequence()) {
                require(same_content(received[i].frame(), frame), "a frame is passed on again with other content");
                return;
            }
        }
        require(received.size() == 1 || frame.sequence() == received.back().frame().sequence() + 1,
            "frames to the next stage have a gap");
        received.push_back(request);
    };
}

void Client::answered(Stream & stream, const wire::ExecuteResponse & response) {
    require(response.session() == stream.id && response.epoch() == stream.epoch, "an answer names another session");
    if (response.has_result()) {
        check_result(stream.id, stream.epoch, response.result());
        return;
    }
    require(response.has_executed(), "an answer says nothing");
    Conversation * conversation = find(stream.id, stream.epoch);
    if (stream.closed || conversation == nullptr) {
        return;
    }
    const uint64_t sequence = response.executed().sequence();
    require(!stream.pending.empty(), "Executed without a frame");
    const wire::Frame frame = stream.pending.front();
    stream.pending.pop_front();
    auto & accepted = conversation->accepted;
    if (sequence != frame.sequence()) {
        // A middle stage whose answer was released already says how far it has come.
        require(world_.entry().about().range().first() == 1 && sequence + 1 == accepted.size() && frame.sequence() < sequence,
            "Executed names another frame than the one that was sent");
        return;
    }
    if (sequence == accepted.size()) {
        accepted.push_back(frame);
        return;
    }
    require(sequence < accepted.size(), "a frame was executed before the one that precedes it");
    require(same_content(frame, accepted[sequence]), "a repeat with other content was taken");
}

void Client::ended(Stream & stream, const grpc::Status & status) {
    stream.ended = true;
    if (stream.call->is_cancelled() || stream.closed) {
        return;
    }
    if (status.ok()) {
        require(stream.call->is_half_closed(), "Execute ended in order though more frames could come");
        require(stream.pending.empty(), "Execute ended in order though a frame was not executed");
    }
    lose(stream);
}

void Client::lose(Stream & stream) {
    if (stream.closed) {
        return;
    }
    stream.closed = true;
    Conversation * conversation = find(stream.id, stream.epoch);
    if (conversation != nullptr && !conversation->gone) {
        const auto position = world_.entry().positions()[conversation->slot];
        for (const wire::Frame & frame : stream.pending) {
            const bool is_next = frame.sequence() == conversation->accepted.size();
            if (position.has_value() && is_next && conversation->rows() < *position) {
                conversation->accepted.push_back(frame);
            }
        }
    }
    stream.pending.clear();
}

void Client::check_result(const std::string & id, uint64_t epoch, const wire::Result & result) {
    if (world_.is_alone()) {
        return;  // the boundary, or the result itself, was made up
    }
    const Conversation * conversation = find(id, epoch);
    const std::vector<wire::Frame> frames = known_frames(id, epoch);
    if (conversation == nullptr || !conversation->trusted || result.sequence() >= frames.size()) {
        return;  // of an epoch that was replaced or used twice, or of a stream that was lost
    }
    const wire::Frame & frame = frames[result.sequence()];
    const wire::Result wanted = expected(world_.entry().settings, frames, result.sequence());
    require(result.prefix_hash_after() == frame.prefix_hash_after(), "a result of other frames");
    require(result.rows() == static_cast<uint32_t>(frame.token_ids_size()), "a result of other rows");
    require(result.first_position() == wanted.first_position(), "a result at another position");
    require(result.has_token() == frame.want_token() && result.token() == wanted.token(), "another token than the whole engine's");
    require(result.logits_rows() == wanted.logits_rows() && result.logits() == wanted.logits(), "other logits than the whole engine's");
}

void Client::check() {
    for (const auto & node : world_.nodes) {
        const wire::StatusResponse status = node->stage->status();
        uint32_t used = 0;
        for (const auto & position : node->positions()) {
            used += position.has_value() ? 1 : 0;
        }
        require(status.slots_total() - status.slots_free() == used, "the stage and its engine count other slots");
        const auto executed = static_cast<uint64_t>(node->knobs->executed);
        require(executed >= status.executed_frames(), "more frames are counted than the engine has seen");
        require(failed_ || executed == status.executed_frames(), "the engine has seen a frame that does not count");
    }
    const auto positions = world_.entry().positions();
    for (auto & [id, conversation] : conversations_) {
        if (conversation.gone) {
            continue;
        }
        const auto & position = positions[conversation.slot];
        if (!position.has_value()) {
            conversation.gone = true;
            continue;
        }
        uint32_t unsaid = 0;  // executed, but the answer does not get through
        for (const auto & stream : streams_) {
            if (!stream->closed && stream->call->stalled && stream->id == id && stream->epoch == conversation.epoch) {
                for (const wire::Frame & frame : stream->pending) {
                    unsaid += static_cast<uint32_t>(frame.token_ids_size());
                }
            }
        }
        require(*position >= conversation.rows(), "the engine has fewer rows than the stage has said");
        require(*position <= conversation.rows() + unsaid, "the engine has rows that nobody has sent, or that ran twice");
    }
}

void Client::finish() {
    for (const auto & call : world_.executes) {
        call->stalled = false;
    }
    world_.settle();
    check();
    for (const auto & [id, conversation] : conversations_) {
        wire::CloseSessionRequest request;
        request.set_session(id);
        request.set_epoch(conversation.epoch);
        request.set_key(conversation.key);
        wire::CloseSessionResponse response;
        Node & on = world_.entry();
        on.run([&] { on.stage->close(request, response); });
        require(response.closed() != conversation.gone, "a session that was open cannot be closed, or the other way round");
    }
    world_.settle();
    const wire::StatusResponse status = world_.entry().stage->status();
    require(status.slots_free() == status.slots_total(), "a slot did not come back when all sessions were closed");
    world_.finish();
}

}  // namespace dgr::fuzz
