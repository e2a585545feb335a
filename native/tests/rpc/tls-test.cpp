// Stages that speak TLS: who is let in, whom they connect to, and certificates that change while they run.

#include "rpc/authority.h"
#include "rpc/route.h"

#include <gtest/gtest.h>

namespace dgr {

static const std::vector<std::vector<int32_t>> PROMPT = {{5, 6, 7, 8}, {9}};

static std::shared_ptr<grpc::ChannelCredentials> shown(const Authority & trusted, const Issued & own) {
    return grpc::SslCredentials({trusted.cert(), own.key, own.cert});
}

static std::shared_ptr<grpc::ChannelCredentials> shown(const Authority & trusted) {
    return grpc::SslCredentials({trusted.cert(), "", ""});
}

static grpc::Status describe(int port, std::string * server_name = nullptr) {
    auto stub = wire::Shard::NewStub(connect_to(port));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    wire::DescribeResponse response;
    const grpc::Status status = stub->Describe(&context, {}, &response);
    if (status.ok() && server_name != nullptr) {
        const auto names = context.auth_context()->FindPropertyValues("x509_common_name");
        *server_name = names.empty() ? "" : std::string(names.front().begin(), names.front().end());
    }
    return status;
}

class Tls : public ::testing::Test {
protected:
    ServerOptions options() const {
        ServerOptions options;
        options.certificates = certificates;
        return options;
    }

    Folder    folder;
    Authority authority{"tests"};
    Issued    client = authority.issue({"client"});
    TlsFiles  files  = folder.put(authority, authority.issue({"first"}));
    std::shared_ptr<Certificates> certificates = std::make_shared<Certificates>(files);
    ConnectsWith connects{shown(authority, client)};
};

TEST_F(Tls, ARouteAnswersAsTheWholeDoes) {
    Route route({0, 2, 4}, {}, options());
    Conversation conversation(route, "private");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    EXPECT_TRUE(converse(conversation, execute, &results, PROMPT, 4) == expected({}, PROMPT, 4));
}

TEST_F(Tls, OnlyClientsWithACertificateOfTheAuthorityAreServed) {
    Route route({0, 4}, {}, options());
    const int port = route.head().port;
    const Authority other("other");
    EXPECT_TRUE(describe(port).ok());
    for (const auto & credentials : {shown(authority), shown(authority, other.issue()), grpc::InsecureChannelCredentials()}) {
        const ConnectsWith changed(credentials);
        EXPECT_EQ(describe(port).error_code(), grpc::StatusCode::UNAVAILABLE);
    }
    EXPECT_TRUE(describe(port).ok());
}

TEST_F(Tls, AClientThatTrustsAnotherAuthorityTurnsAway) {
    Route route({0, 4}, {}, options());
    const Authority other("other");
    const ConnectsWith changed(shown(other, client));
    EXPECT_EQ(describe(route.head().port).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(Tls, WithoutAnAuthorityForClientsEveryoneIsServed) {
    files.client_ca.clear();
    files.next_ca = folder.put("next.pem", authority.cert());
    certificates  = std::make_shared<Certificates>(files);
    const ConnectsWith changed(shown(authority));
    Route route({0, 4}, {}, options());
    EXPECT_TRUE(describe(route.head().port).ok());
}

TEST_F(Tls, ANextStageOfAnotherAuthorityIsRefusedAtOpen) {
    const Authority other("other");
    Route route({0, 2, 4}, {}, options());
    files.next_ca = folder.put("next.pem", other.cert());
    certificates  = std::make_shared<Certificates>(files);
    FakeSettings settings;
    settings.range = {0, 2};
    Worker head(settings, options());
    wire::OpenSessionRequest request = route.open_request(0, "misled", 1);
    const grpc::Status status = open_session(head, request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(rejected_field(status), "successor_address");
    EXPECT_TRUE(open_session(route.head(), request).ok());
}

TEST_F(Tls, ANextStageMayHaveAnAuthorityOfItsOwn) {
    const Authority other("other");
    const Folder    there;
    ServerOptions   for_tail;  // it knows its clients by the first authority
    for_tail.certificates = std::make_shared<Certificates>(there.put(authority, other.issue({"tail"})));
    files.next_ca = folder.put("next.pem", other.cert());
    certificates  = std::make_shared<Certificates>(files);

    const ConnectsWith both(grpc::SslCredentials({authority.cert() + other.cert(), client.key, client.cert}));
    Route route({0, 4}, {}, options());
    FakeSettings settings;
    settings.range   = {0, 2};
    route.workers[0] = std::make_unique<Worker>(settings, options());
    settings.range   = {2, 4};
    route.workers.push_back(std::make_unique<Worker>(settings, for_tail));
    Conversation conversation(route, "two-authorities");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    EXPECT_TRUE(converse(conversation, execute, &results, PROMPT, 2) == expected({}, PROMPT, 2));
}

TEST_F(Tls, AStageThatIsNotTheTailNeedsAnAuthorityForTheNext) {
    files.client_ca.clear();
    certificates = std::make_shared<Certificates>(files);
    FakeSettings settings;
    settings.range = {0, 2};
    EXPECT_THROW(Worker(settings, options()), TlsError);
}

TEST_F(Tls, AnyAddressMayBeListenedOn) {
    ServerOptions everywhere = options();
    everywhere.listen = "0.0.0.0:0";
    const Worker worker({}, everywhere);
    EXPECT_TRUE(describe(worker.port).ok());
}

TEST_F(Tls, ReloadTakesNewCertificatesForNewConnectionsAndKeepsSessions) {
    Route route({0, 2, 4}, {}, options());
    Conversation conversation(route, "long");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    execute.send(conversation.next({1, 2}));
    ASSERT_TRUE(results.next());

    const Authority second("second");
    folder.put(second, second.issue({"renewed"}));
    certificates->reload();
    EXPECT_EQ(describe(route.head().port).error_code(), grpc::StatusCode::UNAVAILABLE);  // the old authority is not trusted now
    const ConnectsWith changed(shown(second, second.issue({"client"})));
    for (const auto & worker : route.workers) {
        std::string name;
        EXPECT_TRUE(describe(worker->port, &name).ok());
        EXPECT_EQ(name, "renewed");
    }

    execute.send(conversation.next({3}));
    EXPECT_TRUE(results.next());
    Conversation later(route, "later");
    for (const auto & worker : route.workers) {
        worker->stub = wire::Shard::NewStub(connect_to(worker->port));
    }
    ASSERT_TRUE(later.open().ok());  // the head connects to the tail with the new ones too
    ResultsCall later_results(later);
    ExecuteCall later_execute(later);
    later_execute.send(later.next({4}));
    EXPECT_TRUE(later_results.next());
}

TEST_F(Tls, AReloadThatFailsNamesTheFileAndKeepsTheOldCertificates) {
    Route route({0, 4}, {}, options());
    for (const std::string & text : {std::string("not PEM"), authority.issue({"new"}).cert, authority.issue({"old", -3, -1}).cert}) {
        folder.put("worker.pem", text);  // the last two do not fit the key or have expired
        try {
            certificates->reload();
            FAIL();
        } catch (const TlsError & error) {
            EXPECT_NE((error.what_failed + error.what()).find("worker.pem"), std::string::npos) << error.what_failed;
        }
        std::string name;
        EXPECT_TRUE(describe(route.head().port, &name).ok());
        EXPECT_EQ(name, "first");
    }
}

TEST_F(Tls, ReloadsUnderManyConnectionsLoseNone) {
    Route route({0, 4}, {}, options());
    std::atomic<bool> stop{false};
    std::atomic<int>  failed{0};
    std::atomic<int>  served{0};
    std::vector<std::thread> clients;
    for (int i = 0; i < 4; ++i) {
        clients.emplace_back([&] {
            while (!stop) {
                (describe(route.head().port).ok() ? served : failed)++;
            }
        });
    }
    for (int i = 0; i < 20; ++i) {
        folder.put(authority, authority.issue({"next"}));
        certificates->reload();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    stop = true;
    for (std::thread & thread : clients) {
        thread.join();
    }
    EXPECT_EQ(failed, 0);
    EXPECT_GT(served, 0);
}

}  // namespace dgr
