// Stages on the fake engine in this process, joined by calls without a network.

#pragma once

#include "calls.h"
#include "fake-engine.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dgr::fuzz {

// What stands around the stages. `alone`: the run itself plays whatever is before and after the stage.
enum class Shape { whole, two, three, head_alone, middle_alone, tail_alone };
constexpr uint32_t N_SHAPES = 6;

struct Node {
    explicit Node(const FakeSettings & with);

    // As on the engine thread, after everything posted before.
    void run(const std::function<void()> & task) const;

    // The next position of each slot; none for a slot that is free.
    std::vector<std::optional<uint32_t>> positions() const;

    const wire::DescribeResponse & about() const { return stage->identity(); }

    FakeSettings                       settings;
    std::shared_ptr<FakeEngine::Knobs> knobs = std::make_shared<FakeEngine::Knobs>();
    std::shared_ptr<Stage>             stage;
};

class World {
public:
    explicit World(Shape shape);
    ~World();

    Node & entry() { return *nodes.front(); }
    Node & last() { return *nodes.back(); }
    bool   is_alone() const { return shape_ >= Shape::head_alone; }

    ExecuteCall & execute(size_t node);
    ResultsCall & results(size_t node, const wire::ResultsRequest & request);

    // Until nothing moves any more.
    void settle();

    // Ends every session and every call: nothing may be left over.
    void finish();

    // As the service does, successor included.
    grpc::Status open(size_t node, const wire::OpenSessionRequest & request, wire::OpenSessionResponse * response = nullptr);

    // Of a client that means well.
    wire::OpenSessionRequest open_request(size_t node, const std::string & id, uint64_t epoch, bool chain, uint32_t n_ctx) const;
    wire::ExecuteRequest     hello(size_t node, const std::string & id, uint64_t epoch) const;

    // What the neighbours of a node say of themselves; of the ends, nothing that makes sense.
    const wire::DescribeResponse & before(size_t node) const;
    const wire::DescribeResponse & after(size_t node) const;

    std::vector<std::unique_ptr<Node>> nodes;

    // In the order in which they were made; none is removed before the end.
    std::vector<std::unique_ptr<ExecuteCall>> executes;
    std::vector<std::unique_ptr<ResultsCall>> all_results;
    std::vector<std::unique_ptr<NextCall>>    nexts;

    // Streams of stages to a next stage that the run plays.
    std::vector<NextCall *> played;
    std::function<void(NextCall &)> on_played;

private:
    void take_new_streams();

    Shape                  shape_;
    wire::DescribeResponse before_;
    wire::DescribeResponse after_;
};

std::string key_of(const std::string & id);

}  // namespace dgr::fuzz
