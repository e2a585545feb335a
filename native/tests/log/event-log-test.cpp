// The log itself: its lines, its levels, several threads.

#include "log/event-log.h"

#include <gtest/gtest.h>

#include <regex>
#include <sstream>
#include <thread>
#include <vector>

namespace dgr {

class EventLog : public testing::Test {
protected:
    ~EventLog() override { stop_log(); }

    std::vector<std::string> lines() const {
        std::vector<std::string> found;
        std::istringstream in(out.str());
        for (std::string line; std::getline(in, line);) {
            found.push_back(line);
        }
        return found;
    }

    std::ostringstream out;
};

TEST_F(EventLog, ATextLineHasTimeLevelEventAndFields) {
    start_log({LogFormat::text, LogLevel::info}, out);
    log_event(LogLevel::warning, "refused", {{"field", "rows"}});
    ASSERT_EQ(lines().size(), 1u);
    EXPECT_TRUE(std::regex_match(lines()[0], std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z warning refused field=rows)")))
        << lines()[0];
}

TEST_F(EventLog, AJsonLineIsOneObject) {
    start_log({LogFormat::json, LogLevel::info}, out);
    log_event(LogLevel::error, "failed", {{"exit_code", 10}});
    ASSERT_EQ(lines().size(), 1u);
    const std::regex whole(R"(\{"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z","level":"error","event":"failed","exit_code":10\})");
    EXPECT_TRUE(std::regex_match(lines()[0], whole)) << lines()[0];
}

TEST_F(EventLog, TextFromOutsideIsNoFormat) {
    start_log({}, out);
    log_event(LogLevel::info, "x", {{"f", "{} %v {0}"}});
    ASSERT_EQ(lines().size(), 1u);
    EXPECT_NE(lines()[0].find("f=\"{} %v {0}\""), std::string::npos) << lines()[0];
}

TEST_F(EventLog, ALevelHidesWhatIsBelowIt) {
    log_event(LogLevel::error, "before the start");
    start_log({LogFormat::text, LogLevel::warning}, out);
    for (const LogLevel level : {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error}) {
        log_event(level, "said");
    }
    EXPECT_EQ(lines().size(), 2u);
    start_log({LogFormat::text, LogLevel::off}, out);
    log_event(LogLevel::error, "said");
    stop_log();
    log_event(LogLevel::error, "said");
    EXPECT_EQ(lines().size(), 2u);
}

TEST_F(EventLog, LinesOfSeveralThreadsDoNotMix) {
    start_log({LogFormat::json, LogLevel::info}, out);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([] {
            for (int n = 0; n < 100; ++n) {
                log_event(LogLevel::info, "said", {{"text", std::string(200, 'x')}});
            }
        });
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    ASSERT_EQ(lines().size(), 400u);
    for (const std::string & line : lines()) {
        EXPECT_EQ(line.size(), lines()[0].size());
        EXPECT_EQ(line.back(), '}');
    }
}

}  // namespace dgr
