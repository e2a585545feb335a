#include "rpc/certificates.h"

namespace dgr {

Certificates::Certificates(TlsFiles files)
    : files_(std::move(files)), current_(std::make_shared<TlsMaterial>(read_tls(files_))) {}

void Certificates::reload() {
    auto next = std::make_shared<TlsMaterial>(read_tls(files_));
    const std::lock_guard<std::mutex> lock(mutex_);
    current_ = std::move(next);
}

std::shared_ptr<const TlsMaterial> Certificates::current() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return current_;
}

std::shared_ptr<grpc::ChannelCredentials> Certificates::for_next_stage() const {
    const auto material = current();
    grpc::SslCredentialsOptions options;
    options.pem_root_certs  = material->next_ca;
    options.pem_private_key = material->key;
    options.pem_cert_chain  = material->cert;
    return grpc::SslCredentials(options);
}

}  // namespace dgr
