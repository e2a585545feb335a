#include "session/frame-check.h"

#include "session/crc32c.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <vector>

namespace dgr {

class FrameCheck : public ::testing::Test {
protected:
    FrameCheck() {
        session_.n_ctx  = 10;
        session_.prefix = prefix_start(Digest{});
    }

    wire::Frame next(const std::vector<int32_t> & ids) const {
        wire::Frame frame;
        frame.set_sequence(session_.next_sequence);
        frame.set_first_position(session_.next_position);
        frame.mutable_token_ids()->Add(ids.begin(), ids.end());
        frame.set_prefix_hash_before(std::string(as_bytes(session_.prefix)));
        frame.set_prefix_hash_after(std::string(as_bytes(prefix_next(session_.prefix, ids.data(), static_cast<uint32_t>(ids.size())))));
        if (!rules_.is_head) {
            wire::Boundary & boundary = *frame.mutable_boundary();
            boundary.set_dtype(wire::DTYPE_F32);
            boundary.set_rows(static_cast<uint32_t>(ids.size()));
            boundary.set_width(rules_.width);
            boundary.set_data(std::string(ids.size() * rules_.width * sizeof(float), '\0'));
            seal(frame);
        }
        return frame;
    }

    static void seal(wire::Frame & frame) {
        wire::Boundary & boundary = *frame.mutable_boundary();
        boundary.set_checksum(crc32c(boundary.data().data(), boundary.data().size()));
    }

    FrameOutcome check(const wire::Frame & frame) const { return check_frame(frame, session_, rules_); }

    void accept(const wire::Frame & frame) {
        KeptAnswer kept;
        kept.sequence    = frame.sequence();
        kept.hash_before = session_.prefix;
        kept.hash_after  = prefix_next(session_.prefix, frame.token_ids().data(), frame.token_ids_size());
        kept.checksum    = frame.has_boundary() ? frame.boundary().checksum() : 0;
        session_.prefix  = kept.hash_after;
        session_.next_sequence += 1;
        session_.next_position += frame.token_ids_size();
        session_.kept.push_back(kept);
    }

    Session    session_;
    FrameRules rules_{false, false, 4, 32, 2};
};

TEST_F(FrameCheck, TheNextFrameRuns) {
    EXPECT_EQ(check(next({1, 2})).verdict, FrameVerdict::run);
    rules_.is_head = true;
    EXPECT_EQ(check(next({1, 2})).verdict, FrameVerdict::run);
}

TEST_F(FrameCheck, EachBrokenFieldIsNamed) {
    const std::vector<std::pair<std::string, std::function<void(wire::Frame &)>>> wrongs = {
        {"token_ids", [](auto & f) { f.clear_token_ids(); }},
        {"token_ids", [](auto & f) { f.mutable_token_ids()->Resize(5, 1); }},
        {"token_ids", [](auto & f) { f.set_token_ids(0, -1); }},
        {"token_ids", [](auto & f) { f.set_token_ids(0, 32); }},
        {"want_logits", [](auto & f) { f.set_want_logits(static_cast<wire::Logits>(7)); }},
        {"boundary", [](auto & f) { f.clear_boundary(); }},
        {"boundary.dtype", [](auto & f) { f.mutable_boundary()->set_dtype(wire::DTYPE_UNSPECIFIED); }},
        {"boundary.rows", [](auto & f) { f.mutable_boundary()->set_rows(3); }},
        {"boundary.rows", [](auto & f) { f.mutable_boundary()->set_rows(0xffffffff); }},
        {"boundary.width", [](auto & f) { f.mutable_boundary()->set_width(0x80000000); }},
        {"boundary.data", [](auto & f) { f.mutable_boundary()->mutable_data()->pop_back(); }},
        {"boundary.data", [](auto & f) { f.mutable_boundary()->clear_data(); }},
        {"boundary.checksum", [](auto & f) { f.mutable_boundary()->set_checksum(f.boundary().checksum() ^ 1); }},
        {"prefix_hash_before", [](auto & f) { f.mutable_prefix_hash_before()->pop_back(); }},
        {"prefix_hash_after", [](auto & f) { f.clear_prefix_hash_after(); }},
    };
    for (const auto & [field, spoil] : wrongs) {
        wire::Frame frame = next({1, 2});
        spoil(frame);
        const FrameOutcome outcome = check(frame);
        EXPECT_EQ(outcome.verdict, FrameVerdict::rejected) << field;
        EXPECT_EQ(outcome.field, "frame." + field);
        EXPECT_FALSE(outcome.reason.empty());
        EXPECT_FALSE(outcome.legal.empty());
    }
    rules_.is_head = true;
    wire::Frame frame = next({1});
    frame.mutable_boundary();
    EXPECT_EQ(check(frame).field, "frame.boundary");
}

TEST_F(FrameCheck, WhatDisagreesWithTheCacheIsAMiss) {
    accept(next({1, 2}));
    wire::Frame position = next({3});
    position.set_first_position(3);
    wire::Frame beyond = next({3});
    beyond.set_sequence(2);
    wire::Frame before = next({3});
    before.set_prefix_hash_before(std::string(32, 'x'));
    wire::Frame swapped = next({3, 4});
    swapped.set_token_ids(0, 4);
    swapped.set_token_ids(1, 3);
    for (const wire::Frame & frame : {position, beyond, before, swapped}) {
        EXPECT_EQ(check(frame).verdict, FrameVerdict::miss);
    }
}

TEST_F(FrameCheck, AnExecutedFrameIsARepeatAConflictOrReleased) {
    const wire::Frame first = next({1, 2});
    accept(first);
    accept(next({3}));
    EXPECT_EQ(check(first).verdict, FrameVerdict::repeat);

    wire::Frame other_ids = first;
    other_ids.set_token_ids(0, 9);
    EXPECT_EQ(check(other_ids).verdict, FrameVerdict::conflict);
    wire::Frame other_boundary = first;
    (*other_boundary.mutable_boundary()->mutable_data())[0] = 1;
    seal(other_boundary);
    EXPECT_EQ(check(other_boundary).verdict, FrameVerdict::conflict);

    session_.release(0);
    EXPECT_EQ(check(first).verdict, FrameVerdict::released);
}

TEST_F(FrameCheck, ASessionFillsToExactlyItsPositions) {
    accept(next({1, 2, 3, 4}));
    accept(next({1, 2, 3, 4}));
    EXPECT_EQ(check(next({1, 2})).verdict, FrameVerdict::run);
    EXPECT_EQ(check(next({1, 2, 3})).field, "frame.token_ids");
    accept(next({1, 2}));
    EXPECT_EQ(check(next({1})).field, "frame.token_ids");
}

TEST_F(FrameCheck, RandomFramesRunOnlyWhenTheyAreTheNextOne) {
    std::mt19937 random(7);
    for (int round = 0; round < 2000; ++round) {
        std::vector<int32_t> ids(1 + random() % 3);
        for (int32_t & id : ids) {
            id = static_cast<int32_t>(random() % 32);
        }
        wire::Frame frame = next(ids);
        const bool spoilt = random() % 2 == 0;
        if (spoilt) {
            switch (random() % 4) {
                case 0: frame.set_sequence(frame.sequence() + 1 + random() % 5); break;
                case 1: frame.set_first_position(frame.first_position() + 1 + random() % 5); break;
                case 2: (*frame.mutable_prefix_hash_before())[random() % 32] ^= 1; break;
                default: (*frame.mutable_prefix_hash_after())[random() % 32] ^= 1; break;
            }
        }
        const bool fits = session_.next_position + ids.size() <= session_.n_ctx;
        ASSERT_EQ(check(frame).verdict == FrameVerdict::run, !spoilt && fits);
        if (!spoilt && fits) {
            accept(frame);
        } else if (!fits) {
            session_ = Session();
            session_.n_ctx  = 10;
            session_.prefix = prefix_start(Digest{});
        }
    }
}

}  // namespace dgr
