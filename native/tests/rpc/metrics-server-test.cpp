// The page of metrics over HTTP.

#include "rpc/metrics-server.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <stdexcept>

namespace dgr {

// A connection to the server, closed at the end.
class Client {
public:
    explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
        sockaddr_in name{};
        name.sin_family      = AF_INET;
        name.sin_port        = htons(static_cast<uint16_t>(port));
        name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr *>(&name), sizeof name), 0);
    }
    ~Client() { close(fd_); }

    Client(const Client &) = delete;
    Client & operator=(const Client &) = delete;

    void say(const std::string & text) { EXPECT_EQ(write(fd_, text.data(), text.size()), static_cast<ssize_t>(text.size())); }

    // Everything up to the end of the connection.
    std::string hear() {
        std::string all;
        char part[4096];
        for (ssize_t size = 0; (size = read(fd_, part, sizeof part)) > 0;) {
            all.append(part, static_cast<size_t>(size));
        }
        return all;
    }

private:
    int fd_;
};

static std::string ask(int port, const std::string & line) {
    Client client(port);
    client.say(line + "\r\nHost: x\r\n\r\n");
    return client.hear();
}

TEST(MetricsServer, AnswersOnePageAndNothingElse) {
    int asked = 0;
    MetricsServer server("127.0.0.1:0", [&] { return "a " + std::to_string(++asked) + "\n"; });
    const std::string answer = ask(server.port(), "GET /metrics HTTP/1.1");
    EXPECT_EQ(answer, "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: 4\r\n"
        "Connection: close\r\n\r\na 1\n");
    EXPECT_EQ(ask(server.port(), "GET / HTTP/1.1").rfind("HTTP/1.1 404 ", 0), 0u);
    EXPECT_EQ(ask(server.port(), "GET /metrics2 HTTP/1.1").rfind("HTTP/1.1 404 ", 0), 0u);
    EXPECT_EQ(ask(server.port(), "POST /metrics HTTP/1.1").rfind("HTTP/1.1 405 ", 0), 0u);
    EXPECT_EQ(ask(server.port(), "GET /metrics " + std::string(9000, 'x')).rfind("HTTP/1.1 200 ", 0), std::string::npos);
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(ask(server.port(), "GET /metrics HTTP/1.0").substr(0, 12), "HTTP/1.1 200");
}

TEST(MetricsServer, ASilentClientDoesNotKeepOthersWaitingForLong) {
    MetricsServer server("127.0.0.1:0", [] { return std::string(1 << 20, 'x'); });
    Client silent(server.port());
    silent.say("GET /met");
    const auto start = std::chrono::steady_clock::now();
    EXPECT_GT(ask(server.port(), "GET /metrics HTTP/1.1").size(), size_t{1} << 20);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    EXPECT_EQ(silent.hear().rfind("HTTP/1.1 400 ", 0), 0u);
}

TEST(MetricsServer, EndsWhileAClientIsSilent) {
    auto server = std::make_unique<MetricsServer>("127.0.0.1:0", [] { return std::string(); });
    Client silent(server->port());
    const auto start = std::chrono::steady_clock::now();
    server.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(MetricsServer, StaysOnLoopbackUnlessItIsInsistedOn) {
    for (const char * address : {"0.0.0.0:0", "192.0.2.1:9400", "[::]:0"}) {
        EXPECT_THROW(check_metrics_address(address, false), std::invalid_argument) << address;
        EXPECT_NO_THROW(check_metrics_address(address, true)) << address;
    }
    for (const char * address : {"localhost:9400", "127.0.0.1", "nowhere", "127.0.0.1:99999"}) {
        EXPECT_THROW(check_metrics_address(address, true), std::invalid_argument) << address;
    }
    EXPECT_THROW(MetricsServer("0.0.0.0:0", [] { return ""; }), std::invalid_argument);
    EXPECT_NO_THROW(MetricsServer("127.0.0.2:0", [] { return ""; }));
}

TEST(MetricsServer, ATakenPortIsNamed) {
    MetricsServer server("127.0.0.1:0", [] { return ""; });
    const std::string address = "127.0.0.1:" + std::to_string(server.port());
    try {
        MetricsServer second(address, [] { return ""; });
        FAIL() << "it listens on a taken port";
    } catch (const std::runtime_error & error) {
        EXPECT_NE(std::string(error.what()).find(address), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("in use"), std::string::npos) << error.what();
    }
}

}  // namespace dgr
