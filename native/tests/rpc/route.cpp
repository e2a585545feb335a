#include "rpc/route.h"

#include "session/crc32c.h"

#include <utility>

namespace dgr {

// Every call ends by itself if something hangs, so that a test fails and does not stand still.
static constexpr auto PATIENCE = std::chrono::seconds(20);

std::string address_of(int port) {
    return "127.0.0.1:" + std::to_string(port);
}

static std::shared_ptr<grpc::ChannelCredentials> & credentials() {
    static std::shared_ptr<grpc::ChannelCredentials> current = grpc::InsecureChannelCredentials();
    return current;
}

ConnectsWith::ConnectsWith(std::shared_ptr<grpc::ChannelCredentials> now) : before_(std::exchange(credentials(), std::move(now))) {}

ConnectsWith::~ConnectsWith() {
    credentials() = before_;
}

std::shared_ptr<grpc::Channel> connect_to(int port) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetMaxReceiveMessageSize(-1);
    return grpc::CreateCustomChannel(address_of(port), credentials(), arguments);
}

std::string rejected_field(const grpc::Status & status) {
    const auto detail = detail_of<wire::Rejected>(status);
    return detail ? detail->field() : "";
}

ServerOptions in_mode(Mode mode) {
    ServerOptions options;
    options.mode = mode;
    return options;
}

Worker::Worker(const FakeSettings & settings, ServerOptions options) {
    options.artifact_digest    = ARTIFACT;
    options.build.lane         = "test";
    options.build.lane_digest  = std::string(64, 'b');
    options.build.patched_tree = std::string(40, 'c');
    server = std::make_unique<ShardServer>(std::make_unique<FakeEngine>(settings, knobs), options);
    server->start();
    port = server->port();
    stub = wire::Shard::NewStub(connect_to(port));
    grpc::ClientContext context;
    const grpc::Status status = stub->Describe(&context, {}, &about);
    if (!status.ok()) {
        throw std::runtime_error("Describe: " + status.error_message());
    }
}

wire::StatusResponse Worker::status() const {
    grpc::ClientContext context;
    wire::StatusResponse response;
    stub->Status(&context, {}, &response);
    return response;
}

Route::Route(const std::vector<uint32_t> & cuts, FakeSettings settings, const ServerOptions & options) {
    settings.n_layer = cuts.back();
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        settings.range = {cuts[i], cuts[i + 1]};
        workers.push_back(std::make_unique<Worker>(settings, options));
    }
}

std::string key_of(const std::string & id) {
    return std::string(as_bytes(sha256("key of " + id)));
}

wire::Peer peer_of(const wire::DescribeResponse & about) {
    wire::Peer peer;
    peer.set_instance(about.instance());
    *peer.mutable_range() = about.range();
    peer.set_patched_tree(about.build().patched_tree());
    peer.set_artifact_digest(about.artifact().digest());
    peer.set_boundary_digest(about.boundary().digest());
    peer.set_n_ubatch(about.numerics().n_ubatch());
    peer.set_numerics_digest(about.numerics().digest());
    peer.set_lane_digest(about.build().lane_digest());
    return peer;
}

wire::OpenSessionRequest Route::open_request(size_t stage, const std::string & id, uint64_t epoch, bool chain) const {
    const wire::DescribeResponse & about = workers[stage]->about;
    wire::OpenSessionRequest request;
    request.set_session(id);
    request.set_epoch(epoch);
    request.set_key(key_of(id));
    request.set_artifact_digest(about.artifact().digest());
    *request.mutable_range() = about.range();
    request.set_lane_digest(about.build().lane_digest());
    request.set_numerics_digest(about.numerics().digest());
    wire::CacheExpectation & cache = *request.mutable_cache();
    cache.set_type_k(about.numerics().type_k());
    cache.set_type_v(about.numerics().type_v());
    cache.set_n_ctx(about.slot_classes(0).n_ctx());
    cache.set_n_ubatch(about.numerics().n_ubatch());
    cache.set_flash_attn(about.numerics().flash_attn());
    cache.set_state_schema_version(about.state_schema_version());
    if (stage == 0) {
        request.mutable_predecessor()->set_client(true);
    } else {
        *request.mutable_predecessor() = peer_of(workers[stage - 1]->about);
    }
    if (stage + 1 < workers.size()) {
        *request.mutable_successor() = peer_of(workers[stage + 1]->about);
        request.set_successor_address(address_of(workers[stage + 1]->port));
    }
    request.set_results_chain(chain);
    return request;
}

grpc::Status open_session(Worker & worker, const wire::OpenSessionRequest & request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + PATIENCE);
    wire::OpenSessionResponse response;
    return worker.stub->OpenSession(&context, request, &response);
}

grpc::Status close_session(Worker & worker, const std::string & id, uint64_t epoch, bool * closed) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + PATIENCE);
    wire::CloseSessionRequest request;
    request.set_session(id);
    request.set_epoch(epoch);
    request.set_key(key_of(id));
    wire::CloseSessionResponse response;
    const grpc::Status status = worker.stub->CloseSession(&context, request, &response);
    if (closed != nullptr) {
        *closed = response.closed();
    }
    return status;
}

Conversation::Conversation(Route & on, std::string name, uint64_t at, bool results_chain)
    : route(on), id(std::move(name)), epoch(at), chain(results_chain), prefix(prefix_start(digest_from_hex(ARTIFACT))) {}

grpc::Status Conversation::open() {
    for (size_t stage = route.workers.size(); stage-- > 0;) {
        const grpc::Status status = open_session(*route.workers[stage], route.open_request(stage, id, epoch, chain));
        if (!status.ok()) {
            return status;
        }
    }
    return grpc::Status::OK;
}

void Conversation::close() {
    for (const auto & worker : route.workers) {
        close_session(*worker, id, epoch);
    }
}

wire::ExecuteRequest Conversation::next(const std::vector<int32_t> & ids, wire::Logits logits) {
    wire::ExecuteRequest request;
    request.set_session(id);
    request.set_epoch(epoch);
    wire::Frame & frame = *request.mutable_frame();
    frame.set_sequence(sequence++);
    frame.set_first_position(position);
    frame.mutable_token_ids()->Add(ids.begin(), ids.end());
    frame.set_prefix_hash_before(std::string(as_bytes(prefix)));
    prefix = prefix_next(prefix, ids.data(), static_cast<uint32_t>(ids.size()));
    position += static_cast<uint32_t>(ids.size());
    frame.set_prefix_hash_after(std::string(as_bytes(prefix)));
    frame.set_want_token(true);
    frame.set_want_logits(logits);
    return request;
}

wire::ExecuteRequest Conversation::hello() const {
    wire::ExecuteRequest request;
    request.set_session(id);
    request.set_epoch(epoch);
    request.mutable_hello()->mutable_sender()->set_client(true);
    request.mutable_hello()->set_key(key_of(id));
    return request;
}

wire::ResultsRequest Conversation::results_request(uint64_t from) const {
    wire::ResultsRequest request;
    request.set_session(id);
    request.set_epoch(epoch);
    request.set_key(key_of(id));
    request.set_from_sequence(from);
    return request;
}

ExecuteCall::ExecuteCall(const Conversation & conversation)
    : ExecuteCall(conversation.route.head().port, conversation.hello()) {}

ExecuteCall::ExecuteCall(int port, const wire::ExecuteRequest & first) : stub_(wire::Shard::NewStub(connect_to(port))) {
    context_.set_deadline(std::chrono::system_clock::now() + PATIENCE);
    stream_ = stub_->Execute(&context_);
    stream_->Write(first);
}

ExecuteCall::~ExecuteCall() {
    if (!ended_) {
        cancel();
        end();
    }
}

std::optional<wire::ExecuteResponse> ExecuteCall::read() {
    wire::ExecuteResponse response;
    return stream_->Read(&response) ? std::optional(response) : std::nullopt;
}

int64_t ExecuteCall::executed() {
    const auto response = read();
    return response && response->has_executed() ? static_cast<int64_t>(response->executed().sequence()) : -1;
}

grpc::Status ExecuteCall::end() {
    while (read()) {
    }
    ended_ = true;
    return stream_->Finish();
}

ResultsCall::ResultsCall(const Conversation & conversation, uint64_t from)
    : ResultsCall(conversation.route.tail().port, conversation.results_request(from)) {}

ResultsCall::ResultsCall(int port, const wire::ResultsRequest & request) : stub_(wire::Shard::NewStub(connect_to(port))) {
    context_.set_deadline(std::chrono::system_clock::now() + PATIENCE);
    stream_ = stub_->Results(&context_, request);
    wire::ResultsResponse response;
    ready_ = stream_->Read(&response) && response.has_ready();
}

ResultsCall::~ResultsCall() {
    if (!ended_) {
        context_.TryCancel();
        end();
    }
}

std::optional<wire::Result> ResultsCall::next() {
    wire::ResultsResponse response;
    return stream_->Read(&response) && response.has_result() ? std::optional(response.result()) : std::nullopt;
}

grpc::Status ResultsCall::end() {
    while (next()) {
    }
    ended_ = true;
    return stream_->Finish();
}

Transcript expected(const FakeSettings & given, const std::vector<std::vector<int32_t>> & prompt, int n_decode) {
    FakeSettings settings = given;
    settings.range = {0, settings.n_layer};
    FakeEngine engine(settings, std::make_shared<FakeEngine::Knobs>());
    const auto slot = static_cast<uint32_t>(engine.open(settings.n_ctx));
    Transcript transcript;
    auto run = [&](const std::vector<int32_t> & ids) {
        const EngineOutput output = engine.execute(
            {slot, engine.position(slot), static_cast<uint32_t>(ids.size()), ids.data(), nullptr, true, LogitsWanted::all});
        transcript.tokens.push_back(output.token);
        transcript.logits.emplace_back(reinterpret_cast<const char *>(output.logits.data()), output.logits.size() * sizeof(float));
    };
    for (const auto & ids : prompt) {
        run(ids);
    }
    for (int i = 0; i < n_decode; ++i) {
        run({transcript.tokens.back()});
    }
    return transcript;
}

void PrintTo(const Transcript & transcript, std::ostream * out) {
    *out << transcript.tokens.size() << " tokens:";
    for (const int32_t token : transcript.tokens) {
        *out << ' ' << token;
    }
    *out << ' ' << transcript.ended;
}

Transcript converse(Conversation & conversation, ExecuteCall & execute, ResultsCall * results,
                    const std::vector<std::vector<int32_t>> & prompt, int n_decode) {
    Transcript transcript;
    auto take = [&](const wire::Result & result) {
        transcript.tokens.push_back(result.token());
        transcript.logits.push_back(result.logits());
    };
    // Reads until this many frames are executed and answered.
    size_t executed = 0;
    auto settle = [&](size_t frames) {
        while (executed < frames || (results == nullptr && transcript.tokens.size() < frames)) {
            const auto response = execute.read();
            if (!response) {
                transcript.ended = "Execute ended: " + execute.end().error_message();
                return false;
            }
            if (response->has_result()) {
                take(response->result());
            } else {
                ++executed;
            }
        }
        while (results != nullptr && transcript.tokens.size() < frames) {
            const auto result = results->next();
            if (!result) {
                transcript.ended = "Results ended: " + results->end().error_message();
                return false;
            }
            take(*result);
        }
        return true;
    };
    size_t frames = 0;
    for (const auto & ids : prompt) {
        execute.send(conversation.next(ids, wire::LOGITS_ALL));
        ++frames;
    }
    if (!settle(frames)) {
        return transcript;
    }
    for (int i = 0; i < n_decode; ++i) {
        execute.send(conversation.next({transcript.tokens.back()}, wire::LOGITS_ALL));
        if (!settle(++frames)) {
            return transcript;
        }
    }
    return transcript;
}

}  // namespace dgr
