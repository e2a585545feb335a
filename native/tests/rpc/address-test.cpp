// Which addresses are addresses, which are loopback, and which a list lets a worker connect to.

#include "rpc/address.h"

#include <gtest/gtest.h>

namespace dgr {

TEST(Address, LoopbackIsKnownByItsFiguresAndOneName) {
    for (const char * address : {"127.0.0.1:0", "127.9.9.9:65535", "localhost:80", "LOCALHOST:80", "[::1]:80", "[::ffff:127.0.0.1]:80"}) {
        EXPECT_TRUE(is_loopback(address)) << address;
    }
    for (const char * address : {"0.0.0.0:0", "[::]:0", "10.0.0.1:80", "example.org:80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
             "127.0.0.1:x", "127.0.0.1.example.org:80", "localhost.example.org:80", "unix:/tmp/x", "", ":80", "[::1:80", "::1:80"}) {
        EXPECT_FALSE(is_loopback(address)) << address;
    }
}

TEST(Address, WhatGrpcOrAResolverWouldReadOtherwiseIsNone) {
    for (const char * text : {"unix:/tmp/x", "unix:x", "dns:///example.org:80", "ipv4:10.0.0.1:80", "127.1:80", "0x7f.0.0.1:80", "2130706433:80",
             "example.org.:80", ".example.org:80", "-x:80", "a b:80", "a/b:80", "a,b:80", "[example.org]:80", "[127.0.0.1]:80", "[::1]", "[]:80", "%61:80"}) {
        EXPECT_FALSE(Address::parse(text)) << text;
    }
    for (const char * text : {"example.org:80", "worker_2:7001", "xn--a.example:1", "10.0.0.1:80", "[fd00::1]:80"}) {
        EXPECT_TRUE(Address::parse(text)) << text;
    }
}

static bool allows(const std::vector<std::string> & patterns, const std::string & address) {
    return AllowList(patterns).allows(*Address::parse(address));
}

TEST(AllowList, LoopbackAloneByDefaultAndOnlyWhatIsNamedOtherwise) {
    EXPECT_TRUE(allows({}, "127.0.0.1:7001"));
    EXPECT_TRUE(allows({}, "[::1]:7001"));
    EXPECT_FALSE(allows({}, "10.0.0.1:7001"));
    EXPECT_FALSE(allows({"10.0.0.1"}, "127.0.0.1:7001"));
    EXPECT_EQ(AllowList().to_text(), "loopback");
}

TEST(AllowList, PatternsMeanWhatTheySay) {
    struct { const char * pattern; const char * yes; const char * no; } cases[] = {
        {"10.1.2.3:7001", "10.1.2.3:7001", "10.1.2.3:7002"},
        {"10.1.2.3", "10.1.2.3:9", "10.1.2.4:9"},
        {"10.0.0.0/8", "10.255.0.1:9", "11.0.0.1:9"},
        {"10.0.0.0/9", "10.127.0.1:9", "10.128.0.1:9"},
        {"10.0.0.0/8:7001", "10.1.1.1:7001", "10.1.1.1:7002"},
        {"0.0.0.0/0", "1.2.3.4:9", "[fd00::1]:9"},
        {"10.0.0.0/8", "[::ffff:10.0.0.1]:9", "[::ffff:11.0.0.1]:9"},
        {"fd00::/8", "[fd12::1]:9", "[fe80::1]:9"},
        {"[fd00::/8]:7001", "[fd12::1]:7001", "[fd12::1]:7002"},
        {"[fd00::1]:7001", "[fd00:0:0::1]:7001", "[fd00::2]:7001"},
        {"gpu1.example.org", "GPU1.example.org:9", "gpu2.example.org:9"},
        {"gpu1:7001", "gpu1:7001", "gpu1:7002"},
        {"*.example.org", "a.b.example.org:9", "example.org:9"},
        {"*.example.org:7001", "a.example.org:7001", "aexample.org:7001"},
        {"10.0.0.0/8", "10.0.0.1:9", "ten.example.org:9"},
    };
    for (const auto & one : cases) {
        EXPECT_TRUE(allows({one.pattern}, one.yes)) << one.pattern << " " << one.yes;
        EXPECT_FALSE(allows({one.pattern}, one.no)) << one.pattern << " " << one.no;
        EXPECT_TRUE(allows({"192.0.2.1", one.pattern}, one.yes)) << one.pattern;
    }
}

TEST(AllowList, APatternThatIsNoneIsRefusedWithItsText) {
    for (const char * pattern : {"", ":7001", "10.0.0.0/33", "10.0.0.0/x", "fd00::/129", "example.org/8", "*", "*.", "*.*.org", "a*.org",
             "example.org:0", "example.org:x", "example.org:65536", "[fd00::1", "[fd00::1]x", "10.0.0", "unix:/tmp/x"}) {
        try {
            AllowList({pattern});
            FAIL() << pattern;
        } catch (const std::invalid_argument & error) {
            EXPECT_NE(std::string(error.what()).find("'" + std::string(pattern) + "'"), std::string::npos) << error.what();
        }
    }
}

TEST(AllowList, KnowsWhetherItReachesBeyondLoopback) {
    EXPECT_FALSE(AllowList().reaches_beyond_loopback());
    EXPECT_FALSE(AllowList({"localhost", "127.0.0.1:7001", "127.0.0.0/8", "::1"}).reaches_beyond_loopback());
    for (const char * pattern : {"10.0.0.1", "127.0.0.0/7", "::/127", "*.localhost", "example.org", "0.0.0.0/0"}) {
        EXPECT_TRUE(AllowList({pattern}).reaches_beyond_loopback()) << pattern;
    }
}

}  // namespace dgr
