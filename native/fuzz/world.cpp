#include "world.h"

#include "engine-thread.h"
#include "require.h"
#include "rpc/compatibility.h"

#include <stdexcept>

namespace dgr::fuzz {

namespace {

const std::string ARTIFACT(64, 'a');
const std::string NODE = "node:";
const std::string PLAYED = "played";
constexpr uint32_t N_LAYER = 4;

std::vector<uint32_t> cuts_of(Shape shape) {
    switch (shape) {
        case Shape::whole: return {0, N_LAYER};
        case Shape::two: return {0, 2, N_LAYER};
        case Shape::three: return {0, 1, 3, N_LAYER};
        case Shape::head_alone: return {0, 2};
        case Shape::middle_alone: return {1, 3};
        case Shape::tail_alone: return {2, N_LAYER};
    }
    return {};
}

FakeSettings settings_of(LayerRange range) {
    FakeSettings settings;
    settings.range    = range;
    settings.n_layer  = N_LAYER;
    settings.width    = 4;
    settings.n_vocab  = 16;
    settings.n_ubatch = 4;
    settings.slots    = 2;
    settings.n_ctx    = 24;
    return settings;
}

BuildInfo build_info() {
    BuildInfo build;
    build.lane         = "fuzz";
    build.lane_digest  = std::string(64, 'b');
    build.patched_tree = std::string(40, 'c');
    return build;
}

wire::DescribeResponse about_of(LayerRange range, const std::string & instance) {
    const FakeEngine engine(settings_of(range), std::make_shared<FakeEngine::Knobs>());
    return describe(engine.describe(), build_info(), ARTIFACT, instance, Mode::exact);
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

}  // namespace

std::string key_of(const std::string & id) {
    return std::string(as_bytes(sha256("key of " + id)));
}

Node::Node(const FakeSettings & with) : settings(with) {
    stage = std::make_shared<Stage>(std::make_unique<FakeEngine>(settings, knobs), build_info(), ARTIFACT, Mode::exact, NextStages{});
}

void Node::run(const std::function<void()> & task) const {
    bool done = false;
    stage->post([&] {
        task();
        done = true;
    });
    run_engines();
    require(done, "the engine thread does not come to what was posted");
}

std::vector<std::optional<uint32_t>> Node::positions() const {
    std::vector<std::optional<uint32_t>> found;
    run([&] {
        for (uint32_t slot = 0; slot < settings.slots; ++slot) {
            try {
                found.emplace_back(stage->engine().position(slot));
            } catch (const std::out_of_range &) {
                found.emplace_back();
            }
        }
    });
    return found;
}

World::World(Shape shape) : shape_(shape) {
    const std::vector<uint32_t> cuts = cuts_of(shape);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        nodes.push_back(std::make_unique<Node>(settings_of({cuts[i], cuts[i + 1]})));
    }
    before_ = about_of({0, std::max(cuts.front(), 1u)}, "played-before");
    after_  = about_of({std::min(cuts.back(), N_LAYER - 1), N_LAYER}, "played-after");
}

World::~World() {
    for (const auto & node : nodes) {
        node->stage->stop();
    }
}

ExecuteCall & World::execute(size_t node) {
    executes.push_back(std::make_unique<ExecuteCall>(nodes[node]->stage));
    return *executes.back();
}

ResultsCall & World::results(size_t node, const wire::ResultsRequest & request) {
    all_results.push_back(std::make_unique<ResultsCall>(nodes[node]->stage, request));
    return *all_results.back();
}

void World::take_new_streams() {
    for (auto & next : take_dialled()) {
        if (next->address().compare(0, NODE.size(), NODE) == 0) {
            NextCall *    here  = next.get();
            ExecuteCall & there = execute(std::stoul(next->address().substr(NODE.size())));
            there.on_response    = [here](const wire::ExecuteResponse & response) { here->respond(response); };
            there.on_end         = [here](const grpc::Status & status) { here->end(status); };
            here->on_request     = [&there](const wire::ExecuteRequest & request) { there.send(request); };
            here->on_writes_done = [&there] { there.half_close(); };
            here->on_cancel      = [&there] { there.cancel(); };
        } else {
            played.push_back(next.get());
            if (on_played) {
                on_played(*next);
            }
        }
        nexts.push_back(std::move(next));
    }
}

void World::settle() {
    bool moved = true;
    for (int round = 0; moved; ++round) {
        require(round < 10000, "the calls never come to rest");
        moved = false;
        run_engines();
        take_new_streams();
        for (const auto & call : nexts) {
            moved = call->pump() || moved;
        }
        for (size_t i = 0; i < executes.size(); ++i) {
            moved = executes[i]->pump() || moved;
        }
        for (size_t i = 0; i < all_results.size(); ++i) {
            moved = all_results[i]->pump() || moved;
        }
    }
}

void World::finish() {
    for (const auto & call : executes) {
        call->stalled = false;
    }
    for (const auto & call : all_results) {
        call->stalled = false;
    }
    for (const auto & call : nexts) {
        call->stalled = false;
    }
    settle();
    for (const auto & node : nodes) {
        node->run([&] { node->stage->end_all(); });
    }
    settle();
    for (const auto & call : nexts) {
        require(call->gone(), "a stream to the next stage outlives its session");
    }
    for (const auto & call : executes) {
        call->cancel();
    }
    for (const auto & call : all_results) {
        require(call->gone(), "a Results call outlives its session");
    }
    settle();
    for (const auto & call : executes) {
        require(call->gone(), "an Execute call does not end");
    }
    for (const auto & node : nodes) {
        const wire::StatusResponse status = node->stage->status();
        require(status.slots_free() == status.slots_total(), "a slot does not come back");
        for (const auto & position : node->positions()) {
            require(!position.has_value(), "the engine keeps a slot that the stage gave back");
        }
    }
}

const wire::DescribeResponse & World::before(size_t node) const {
    return node == 0 ? before_ : nodes[node - 1]->about();
}

const wire::DescribeResponse & World::after(size_t node) const {
    return node + 1 < nodes.size() ? nodes[node + 1]->about() : after_;
}

grpc::Status World::open(size_t node, const wire::OpenSessionRequest & request, wire::OpenSessionResponse * response) {
    const wire::DescribeResponse & self = nodes[node]->about();
    grpc::Status status = check_open(request, self, AllowList());
    if (status.ok() && request.has_successor()) {
        status = check_successor(request, self, after(node));
    }
    if (!status.ok()) {
        return status;
    }
    // The fake streams are told apart by address; what the client said was checked above.
    wire::OpenSessionRequest taken = request;
    if (request.has_successor()) {
        taken.set_successor_address(node + 1 < nodes.size() ? NODE + std::to_string(node + 1) : PLAYED);
    }
    wire::OpenSessionResponse said;
    nodes[node]->run([&] { status = nodes[node]->stage->open(taken, said); });
    if (response != nullptr) {
        *response = said;
    }
    return status;
}

wire::OpenSessionRequest World::open_request(
    size_t node, const std::string & id, uint64_t epoch, bool chain, uint32_t n_ctx) const {
    const wire::DescribeResponse & about = nodes[node]->about();
    wire::OpenSessionRequest request;
    request.set_session(id);
    request.set_epoch(epoch);
    request.set_key(key_of(id));
    request.set_artifact_digest(about.artifact().digest());
    *request.mutable_range() = about.range();
    request.set_numerics_digest(about.numerics().digest());
    wire::CacheExpectation & cache = *request.mutable_cache();
    cache.set_type_k(about.numerics().type_k());
    cache.set_type_v(about.numerics().type_v());
    cache.set_n_ctx(n_ctx);
    cache.set_n_ubatch(about.numerics().n_ubatch());
    cache.set_flash_attn(about.numerics().flash_attn());
    cache.set_state_schema_version(about.state_schema_version());
    if (about.range().first() == 0) {
        request.mutable_predecessor()->set_client(true);
    } else {
        *request.mutable_predecessor() = peer_of(before(node));
    }
    if (about.range().last() != N_LAYER) {
        *request.mutable_successor() = peer_of(after(node));
        request.set_successor_address("127.0.0.1:1");
    }
    request.set_results_chain(chain);
    return request;
}

wire::ExecuteRequest World::hello(size_t node, const std::string & id, uint64_t epoch) const {
    wire::ExecuteRequest request;
    request.set_session(id);
    request.set_epoch(epoch);
    wire::Peer & sender = *request.mutable_hello()->mutable_sender();
    if (nodes[node]->about().range().first() == 0) {
        sender.set_client(true);
    } else {
        sender.set_instance(before(node).instance());
    }
    request.mutable_hello()->set_key(key_of(id));
    return request;
}

}  // namespace dgr::fuzz
