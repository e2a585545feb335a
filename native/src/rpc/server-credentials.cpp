// Server certificates that can change while the server runs. gRPC offers that in its C interface only: before each
// handshake it asks whether there are new ones, and keeps what it has where they do not work. It takes the
// connections of a listening socket one after the other, so that nothing changes between asking and using. Only a name
// that has several addresses, such as localhost, is listened on with several sockets.

#include "rpc/certificates.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <type_traits>

namespace dgr {

// What a listener has been given.
struct Fetch {
    std::shared_ptr<const Certificates> certificates;
    std::shared_ptr<const TlsMaterial>  given;
    std::mutex                          mutex;
};

static grpc_ssl_certificate_config_reload_status fetch(void * data, grpc_ssl_server_certificate_config ** config) {
    Fetch & fetch = *static_cast<Fetch *>(data);
    const std::lock_guard<std::mutex> lock(fetch.mutex);
    const auto current = fetch.certificates->current();
    if (current == fetch.given) {
        return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    }
    const grpc_ssl_pem_key_cert_pair pair = {current->key.c_str(), current->cert.c_str()};
    // There must be an authority even where no client is asked for a certificate.
    const std::string & authority = current->client_ca.empty() ? current->cert : current->client_ca;
    *config = grpc_ssl_server_certificate_config_create(authority.c_str(), &pair, 1);
    fetch.given = current;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

static grpc_server_credentials * make(Fetch & state) {
    const auto asked = state.certificates->current()->client_ca.empty()
        ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(asked, fetch, &state));
}

// The state of the fetcher must be there before the class of gRPC that is given the credentials.
struct HasFetch {
    explicit HasFetch(std::shared_ptr<const Certificates> certificates) : state{std::move(certificates), nullptr, {}} {}
    Fetch state;
};

// In newer releases of gRPC the class owns the C object.
template <class Base, bool is_interface = std::is_abstract_v<Base>>
class ReloadingCredentials final : private HasFetch, public Base {
public:
    explicit ReloadingCredentials(std::shared_ptr<const Certificates> certificates)
        : HasFetch(std::move(certificates)), Base(make(state)) {}
};

// In older ones it is an interface.
template <class Base>
class ReloadingCredentials<Base, true> final : private HasFetch, public Base {
public:
    explicit ReloadingCredentials(std::shared_ptr<const Certificates> certificates)
        : HasFetch(std::move(certificates)), credentials_(make(state)) {}

    ~ReloadingCredentials() override { grpc_server_credentials_release(credentials_); }

    void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor> &) override {}

private:
    int AddPortToServer(const std::string & address, grpc_server * server) override {
        return grpc_server_add_http2_port(server, address.c_str(), credentials_);
    }

    grpc_server_credentials * credentials_;
};

std::shared_ptr<grpc::ServerCredentials> server_credentials(std::shared_ptr<const Certificates> certificates) {
    return std::make_shared<ReloadingCredentials<grpc::ServerCredentials>>(std::move(certificates));
}

}  // namespace dgr
