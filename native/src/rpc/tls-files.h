// Certificates and keys as PEM files, read and checked before anyone relies on them.

#pragma once

#include <stdexcept>
#include <string>

namespace dgr {

// Where they lie. Empty names: not given.
struct TlsFiles {
    std::string cert;       // the worker's own certificate, then those that signed it
    std::string key;
    std::string client_ca;  // clients must show a certificate that this authority signed
    std::string next_ca;    // the next stage must; client_ca where it is not given

    bool given() const { return !(cert + key + client_ca + next_ca).empty(); }
};

// What is in them.
struct TlsMaterial {
    std::string cert;
    std::string key;
    std::string client_ca;
    std::string next_ca;
};

class TlsError : public std::runtime_error {
public:
    TlsError(std::string what, const std::string & cause, std::string next)
        : std::runtime_error(cause), what_failed(std::move(what)), next_step(std::move(next)) {}

    const std::string what_failed;  // with the name of the file or the option
    const std::string next_step;
};

// Throws TlsError for a file that cannot be read, is not what it should be, has expired, or does not fit the others.
TlsMaterial read_tls(const TlsFiles & files);

}  // namespace dgr
