// Fuzz target: sequences of calls on stages with a fake engine. See client.h for what must hold.

#include "client.h"

using dgr::fuzz::Client;
using dgr::fuzz::Input;
using dgr::fuzz::Shape;
using dgr::fuzz::World;

namespace {

constexpr int MOST_CALLS = 80;

void (Client::*const CALLS[])() = {
    &Client::open, &Client::open, &Client::open, &Client::hello, &Client::hello, &Client::hello,
    &Client::frame, &Client::frame, &Client::frame, &Client::frame, &Client::frame, &Client::frame,
    &Client::frame, &Client::frame, &Client::repeat, &Client::repeat, &Client::play_next, &Client::play_next,
    &Client::play_next, &Client::attach, &Client::attach, &Client::spoilt_frame, &Client::conflicting_frame,
    &Client::half_close, &Client::cancel, &Client::close, &Client::leave_results, &Client::stall, &Client::stall,
    &Client::break_writes, &Client::fail_engine, &Client::drain,
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    Input input(data, size);
    World world(static_cast<Shape>(input.below(dgr::fuzz::N_SHAPES)));
    Client client(world, input);
    // A first session that works, or too few runs would come to anything.
    client.open();
    client.hello();
    for (int i = 0; i < MOST_CALLS && !input.empty(); ++i) {
        (client.*CALLS[input.below(std::size(CALLS))])();
        if (!input.one_in(4)) {  // else more comes at once
            world.settle();
            client.check();
        }
    }
    world.settle();
    client.check();
    client.finish();
    return 0;
}
