#include "rpc/authority.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <stdexcept>

namespace dgr {

static constexpr long DAY_S = 24 * 60 * 60;

template <class Write>
static std::string pem(Write write) {
    const std::shared_ptr<BIO> bio(BIO_new(BIO_s_mem()), BIO_free);
    write(bio.get());
    char * data = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &data);
    return {data, static_cast<size_t>(size)};
}

static std::shared_ptr<EVP_PKEY> new_key() {
    return {EVP_EC_gen("P-256"), EVP_PKEY_free};
}

static void extend(X509 * cert, X509 * issuer, int nid, const char * value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
    const std::shared_ptr<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value), X509_EXTENSION_free);
    if (!extension || X509_add_ext(cert, extension.get(), -1) != 1) {
        throw std::runtime_error("cannot make a certificate");
    }
}

static void set_name(X509_NAME * name, const std::string & text) {
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char *>(text.c_str()), -1, -1, 0);
}

static std::string certificate(const Wish & wish, const std::string & issuer, EVP_PKEY * own, EVP_PKEY * signer, bool is_authority) {
    static std::atomic<long> serial{1};
    const std::shared_ptr<X509> cert(X509_new(), X509_free);
    X509_set_version(cert.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert.get()), serial++);
    X509_gmtime_adj(X509_getm_notBefore(cert.get()), wish.from_days * DAY_S);
    X509_gmtime_adj(X509_getm_notAfter(cert.get()), wish.until_days * DAY_S);
    set_name(X509_get_subject_name(cert.get()), wish.name);
    set_name(X509_get_issuer_name(cert.get()), issuer);
    X509_set_pubkey(cert.get(), own);
    extend(cert.get(), cert.get(), NID_basic_constraints, is_authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
    if (!is_authority) {
        extend(cert.get(), cert.get(), NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1,IP:::1");
    }
    X509_sign(cert.get(), signer, EVP_sha256());
    return pem([&](BIO * bio) { PEM_write_bio_X509(bio, cert.get()); });
}

Authority::Authority(const std::string & name)
    : name_(name), key_(new_key()), cert_(certificate({name, -1, 1}, name, key_.get(), key_.get(), true)) {}

Issued Authority::issue(const Wish & wish) const {
    const std::shared_ptr<EVP_PKEY> own = new_key();
    return {certificate(wish, name_, own.get(), key_.get(), false),
        pem([&](BIO * bio) { PEM_write_bio_PrivateKey(bio, own.get(), nullptr, nullptr, 0, nullptr, nullptr); })};
}

static std::filesystem::path new_folder() {
    static std::atomic<int> number{0};
    const auto path = std::filesystem::temp_directory_path()
        / ("dgr-tls-" + std::to_string(getpid()) + "-" + std::to_string(number++));
    std::filesystem::create_directories(path);
    return path;
}

Folder::Folder() : path(new_folder()) {}

Folder::~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
}

std::string Folder::put(const std::string & name, const std::string & text) const {
    std::ofstream(path / name, std::ios::binary) << text;
    return (path / name).string();
}

TlsFiles Folder::put(const Authority & authority, const Issued & own) const {
    return {put("worker.pem", own.cert), put("worker-key.pem", own.key), put("ca.pem", authority.cert()), ""};
}

}  // namespace dgr
