#include "bench/frame-times.h"

#include "session/crc32c.h"

#include <algorithm>
#include <memory>

namespace dgr::bench {

// Small numbers without a pattern, as a residual has them.
static std::string made_boundary(uint32_t rows, uint32_t width) {
    const std::vector<int32_t> raw = made_tokens(rows * width, 2001);
    std::string data(raw.size() * sizeof(float), '\0');
    auto * out = reinterpret_cast<unsigned char *>(data.data());
    for (size_t i = 0; i < raw.size(); ++i) {
        const float value = static_cast<float>(raw[i] - 1000) / 1000.0f;
        std::copy_n(reinterpret_cast<const unsigned char *>(&value), sizeof(value), out + i * sizeof(value));
    }
    return data;
}

std::vector<FrameTime> time_frames(const BenchStage & tail, uint32_t rows, uint32_t count) {
    if (tail.about.range().first() == 0 || tail.about.range().last() != tail.about.artifact().n_layer()) {
        throw BenchError(tail.name() + " is not a tail that has a predecessor");
    }
    const uint32_t n_ctx = tail.about.slot_classes(0).n_ctx();
    const uint32_t width = tail.about.boundary().width();
    const std::vector<int32_t> ids = made_tokens(rows, tail.about.artifact().n_vocab());
    wire::Boundary boundary;
    boundary.set_dtype(wire::DTYPE_F32);
    boundary.set_rows(rows);
    boundary.set_width(width);
    boundary.set_data(made_boundary(rows, width));
    boundary.set_checksum(crc32c(boundary.data().data(), boundary.data().size()));

    std::vector<FrameTime> times;
    std::unique_ptr<BenchSession> session;
    while (times.size() < count) {
        if (!session || session->position() + rows > n_ctx) {
            session.reset();  // gives its slot back first
            session = std::make_unique<BenchSession>(tail, n_ctx);
        }
        wire::ExecuteRequest request = session->frame(ids.data(), rows, true);
        *request.mutable_frame()->mutable_boundary() = boundary;
        FrameTime time;
        time.bytes = request.ByteSizeLong();
        const Clock::time_point begin = Clock::now();
        session->send(request);
        const wire::Result result = session->receive(session->sent() - 1);
        time.us         = us_since(begin);
        time.compute_us = result.compute_us();
        times.push_back(time);
    }
    return times;
}

}  // namespace dgr::bench
