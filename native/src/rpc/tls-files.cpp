#include "rpc/tls-files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

namespace dgr {

static constexpr uintmax_t MAX_FILE_BYTES = 4 << 20;  // all authorities of a distribution are a quarter of a MiB

template <auto Free>
struct Deleter {
    template <class T>
    void operator()(T * pointer) const { Free(pointer); }
};
using Bio  = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Cert = std::unique_ptr<X509, Deleter<X509_free>>;
using Key  = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;

static TlsError unusable(const std::string & option, const std::string & file, const std::string & cause, const std::string & next) {
    return {"cannot use " + file + " (" + option + ")", cause, next};
}

static std::string read(const std::string & option, const std::string & file) {
    const std::string next = "name a file that this user can read: ls -l " + file;
    std::error_code code;
    const auto size = std::filesystem::file_size(file, code);  // refuses folders and devices; follows links
    if (code) {
        throw unusable(option, file, code.message(), next);
    }
    if (size > MAX_FILE_BYTES) {
        throw unusable(option, file, "it has " + std::to_string(size) + " bytes, no certificate is that long", next);
    }
    std::ifstream stream(file, std::ios::binary);
    std::string text(size, '\0');
    if (!stream || !stream.read(text.data(), static_cast<std::streamsize>(size))) {
        throw unusable(option, file, std::strerror(errno), next);
    }
    return text;
}

static std::string reason() {
    const unsigned long code = ERR_peek_last_error();
    const char * text = ERR_reason_error_string(code);
    ERR_clear_error();
    return text == nullptr ? "unknown" : text;
}

static std::string in_words(const X509_NAME * name) {
    Bio bio(BIO_new(BIO_s_mem()));
    X509_NAME_print_ex(bio.get(), name, 0, XN_FLAG_RFC2253);
    char * data = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &data);
    return {data, static_cast<size_t>(size)};
}

static std::string in_words(const ASN1_TIME * time) {
    Bio bio(BIO_new(BIO_s_mem()));
    ASN1_TIME_print(bio.get(), time);
    char * data = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &data);
    return {data, static_cast<size_t>(size)};
}

// Why a certificate is not good now; empty when it is.
static std::string out_of_time(const X509 * cert) {
    const std::string name = "the certificate of " + in_words(X509_get_subject_name(cert));
    if (X509_cmp_current_time(X509_get0_notAfter(cert)) < 0) {
        return name + " expired on " + in_words(X509_get0_notAfter(cert));
    }
    if (X509_cmp_current_time(X509_get0_notBefore(cert)) > 0) {
        return name + " is not valid before " + in_words(X509_get0_notBefore(cert)) + "; is this machine's clock right?";
    }
    return "";
}

static std::vector<Cert> certificates(const std::string & option, const std::string & file, const std::string & text) {
    const std::string next = "look at it with: openssl x509 -noout -text -in " + file;
    Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    std::vector<Cert> certs;
    ERR_clear_error();
    while (X509 * cert = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
        certs.emplace_back(cert);
    }
    const bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    const std::string why = reason();
    if (certs.empty() && ended) {
        throw unusable(option, file, "there is no PEM certificate in it", next);
    }
    if (!ended) {
        throw unusable(option, file, "certificate " + std::to_string(certs.size() + 1) + " in it is damaged: " + why, next);
    }
    return certs;
}

static std::string authorities(const std::string & option, const std::string & file) {
    const std::string text = read(option, file);
    std::string why;
    for (const Cert & cert : certificates(option, file, text)) {
        why = out_of_time(cert.get());
        if (why.empty()) {
            return text;  // a bundle may hold some that are not good any more
        }
    }
    throw unusable(option, file, why, "name an authority that is valid now");
}

static Key private_key(const std::string & file, const std::string & text) {
    Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    bool asked = false;
    const auto no_passphrase = [](char *, int, int, void * data) {  // OpenSSL would ask on the terminal
        *static_cast<bool *>(data) = true;
        return -1;
    };
    ERR_clear_error();
    Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, &asked));
    const std::string why = reason();
    const bool absent = text.find("PRIVATE KEY-----") == std::string::npos;
    if (key == nullptr && asked) {
        throw unusable("--tls-key", file, "the key is protected by a passphrase, and a worker has nobody to ask",
            "write it without one: openssl pkey -in " + file + " -out KEY.pem");
    }
    if (key == nullptr) {
        throw unusable("--tls-key", file, absent ? "there is no PEM private key in it" : "the key in it is damaged: " + why,
            "look at it with: openssl pkey -noout -in " + file);
    }
    return key;
}

TlsMaterial read_tls(const TlsFiles & files) {
    if (files.cert.empty() || files.key.empty()) {
        throw TlsError(std::string("TLS needs ") + (files.cert.empty() ? "--tls-cert" : "--tls-key"),
            "a worker shows a certificate and proves with its key that it is its own", "give --tls-cert FILE and --tls-key FILE");
    }
    TlsMaterial out;
    out.cert = read("--tls-cert", files.cert);
    const std::vector<Cert> chain = certificates("--tls-cert", files.cert, out.cert);
    const std::string why = out_of_time(chain.front().get());
    if (!why.empty()) {
        throw unusable("--tls-cert", files.cert, why, "get a new certificate; for trials: dgr-build certs dev FOLDER");
    }
    out.key = read("--tls-key", files.key);
    const Key key = private_key(files.key, out.key);
    if (X509_check_private_key(chain.front().get(), key.get()) != 1) {
        ERR_clear_error();
        throw unusable("--tls-key", files.key, "it is not the key of the first certificate in " + files.cert + ", the one of "
            + in_words(X509_get_subject_name(chain.front().get())), "name the key that was made with that certificate");
    }
    if (!files.client_ca.empty()) {
        out.client_ca = authorities("--tls-client-ca", files.client_ca);
    }
    out.next_ca = files.next_ca.empty() ? out.client_ca : authorities("--tls-next-ca", files.next_ca);
    return out;
}

}  // namespace dgr
