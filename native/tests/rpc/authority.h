// Certificates made on the spot, in a folder that goes with the test.

#pragma once

#include "rpc/tls-files.h"

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <filesystem>
#include <memory>
#include <string>

namespace dgr {

struct Issued {
    std::string cert;  // PEM
    std::string key;
};

// What a certificate is given; the names are those of this machine's loopback.
struct Wish {
    std::string name       = "worker";
    long        from_days  = -1;
    long        until_days = 1;
};

class Authority {
public:
    explicit Authority(const std::string & name);

    Issued issue(const Wish & wish = {}) const;
    const std::string & cert() const { return cert_; }

private:
    std::string name_;
    std::shared_ptr<EVP_PKEY> key_;
    std::string cert_;
};

class Folder {
public:
    Folder();
    ~Folder();

    Folder(const Folder &) = delete;
    Folder & operator=(const Folder &) = delete;

    // Writes a file and returns its name.
    std::string put(const std::string & name, const std::string & text) const;

    // The files of a worker, of which clients and next stages have the same authority.
    TlsFiles put(const Authority & authority, const Issued & own) const;

    const std::filesystem::path path;
};

}  // namespace dgr
