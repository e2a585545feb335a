#include "session/session-table.h"

#include <gtest/gtest.h>

namespace dgr {

static Session make(const std::string & id, uint64_t epoch, const std::string & key) {
    Session session;
    session.id    = id;
    session.epoch = epoch;
    session.key   = key;
    return session;
}

TEST(SessionTable, AHigherEpochWithTheSameKeyReplaces) {
    SessionTable table;
    EXPECT_EQ(table.claim("a", 1, "key"), Claim::fresh);
    table.put(make("a", 2, "key"));
    EXPECT_EQ(table.claim("a", 3, "key"), Claim::replaces);
    EXPECT_EQ(table.claim("a", 2, "key"), Claim::stale);
    EXPECT_EQ(table.claim("a", 1, "key"), Claim::stale);
}

TEST(SessionTable, AnotherKeyIsForeignAtAnyEpoch) {
    SessionTable table;
    table.put(make("a", 2, "key"));
    EXPECT_EQ(table.claim("a", 9, "kez"), Claim::foreign);
    EXPECT_EQ(table.claim("a", 9, "key "), Claim::foreign);
    EXPECT_EQ(table.claim("b", 1, "kez"), Claim::fresh);
}

static KeptAnswer answer(uint64_t sequence, size_t bytes) {
    auto result = std::make_shared<wire::Result>();
    result->set_logits(std::string(bytes, 'x'));
    KeptAnswer kept;
    kept.sequence = sequence;
    kept.result   = result;
    return kept;
}

TEST(KeptAnswers, AreBoundedButTheLastOneStays) {
    Session session;
    for (uint64_t sequence = 0; sequence < 5; ++sequence) {
        session.kept.push_back(answer(sequence, 1000));
    }
    session.bound_kept(2 * (1000 + sizeof(KeptAnswer)));
    EXPECT_EQ(session.kept.size(), 2u);
    EXPECT_EQ(session.find_kept(2), nullptr);
    ASSERT_NE(session.find_kept(3), nullptr);
    EXPECT_EQ(session.find_kept(3)->sequence, 3u);
    session.bound_kept(1);
    EXPECT_EQ(session.kept.size(), 1u);
    EXPECT_NE(session.find_kept(4), nullptr);
}

TEST(KeptAnswers, AreReleasedUpToASequence) {
    Session session;
    for (uint64_t sequence = 0; sequence < 4; ++sequence) {
        session.kept.push_back(answer(sequence, 1));
    }
    session.release(1);
    EXPECT_EQ(session.find_kept(1), nullptr);
    EXPECT_NE(session.find_kept(2), nullptr);
    session.release(9);
    EXPECT_TRUE(session.kept.empty());
}

}  // namespace dgr
