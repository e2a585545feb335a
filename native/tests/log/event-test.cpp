// Events as text and as JSON.

#include "log/event.h"

#include <gtest/gtest.h>

namespace dgr {

TEST(Event, TextQuotesOnlyWhatIsNoPlainWord) {
    const Fields fields = {{"address", "127.0.0.1:7001"}, {"port", 7001}, {"tls", false}, {"cause", "no such file"}, {"peer", ""}};
    EXPECT_EQ(to_text("listening", fields), "listening address=127.0.0.1:7001 port=7001 tls=false cause=\"no such file\" peer=\"\"");
}

TEST(Event, JsonKeepsNumbersAndTruthAsTheyAre) {
    const Fields fields = {{"session", "7"}, {"epoch", uint64_t{18446744073709551615u}}, {"seconds", 0.5}, {"tls", true}};
    EXPECT_EQ(to_json_members("opened", fields),
        R"("event":"opened","session":"7","epoch":18446744073709551615,"seconds":0.500000,"tls":true)");
}

TEST(Event, WhatAClientSentCannotBreakTheLine) {
    const std::string nasty = "a\"b\\c\nd\x7f=";
    EXPECT_EQ(to_json_members("x", {{"f", nasty}}), R"("event":"x","f":"a\"b\\c\u000ad\u007f=")");
    EXPECT_EQ(to_text("x", {{"f", nasty}}), R"(x f="a\"b\\c\u000ad\u007f=")");
}

TEST(Event, LongValuesAreCut) {
    const std::string text = to_text("x", {{"f", std::string(MAX_FIELD_BYTES, 'a')}, {"g", std::string(1 << 20, 'b')}});
    EXPECT_EQ(text, "x f=" + std::string(MAX_FIELD_BYTES, 'a') + " g=" + std::string(MAX_FIELD_BYTES, 'b') + "...");
}

TEST(Event, Utf8StaysAndOtherBytesAreReplaced) {
    EXPECT_EQ(to_json_members("x", {{"f", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"}}), "\"event\":\"x\",\"f\":\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
    for (const char * broken : {"\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82"}) {
        const std::string members = to_json_members("x", {{"f", broken}});
        EXPECT_NE(members.find("\\ufffd"), std::string::npos) << members;
        for (const char c : members) {
            EXPECT_LT(static_cast<unsigned char>(c), 0x80) << members;
        }
    }
}

}  // namespace dgr
