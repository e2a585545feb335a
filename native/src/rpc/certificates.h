// The certificates of a worker while it runs: read anew when told, and used by the connections made from then on.

#pragma once

#include "rpc/tls-files.h"

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>

namespace dgr {

class Certificates {
public:
    // Throws TlsError.
    explicit Certificates(TlsFiles files);

    // Reads the files again. Connections that stand go on. Throws TlsError, and everything stays as it was.
    void reload();

    std::shared_ptr<const TlsMaterial> current() const;

    bool knows_next_stages() const { return !current()->next_ca.empty(); }

    // For a connection to a next stage; this worker's certificate is shown there.
    std::shared_ptr<grpc::ChannelCredentials> for_next_stage() const;

private:
    const TlsFiles                     files_;
    mutable std::mutex                 mutex_;
    std::shared_ptr<const TlsMaterial> current_;
};

// For a listener. Asks for a certificate of each client where there is an authority to check it with.
std::shared_ptr<grpc::ServerCredentials> server_credentials(std::shared_ptr<const Certificates> certificates);

}  // namespace dgr
