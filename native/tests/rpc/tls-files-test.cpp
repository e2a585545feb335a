// What is wrong with certificates is said before anyone relies on them: the file, the cause, the next step.

#include "rpc/authority.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>

namespace dgr {

static const Authority & authority() {
    static const Authority made("tests");
    return made;
}

// What reading these files is refused with: "what failed: cause"; empty when they are good.
static std::string refusal(const TlsFiles & files) {
    try {
        read_tls(files);
        return "";
    } catch (const TlsError & error) {
        EXPECT_FALSE(error.next_step.empty());
        return error.what_failed + ": " + error.what();
    }
}

static void expect(const std::string & text, std::initializer_list<std::string> parts) {
    for (const std::string & part : parts) {
        EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' in: " << text;
    }
}

TEST(TlsFiles, GoodOnesAreReadAndTheNextStagesAuthorityIsThatOfTheClients) {
    const Folder folder;
    TlsFiles files = folder.put(authority(), authority().issue());
    TlsMaterial material = read_tls(files);
    EXPECT_EQ(material.client_ca, authority().cert());
    EXPECT_EQ(material.next_ca, authority().cert());
    const Authority other("other");
    files.next_ca = folder.put("next.pem", other.cert());
    EXPECT_EQ(read_tls(files).next_ca, other.cert());
}

TEST(TlsFiles, AFileThatCannotBeReadIsNamed) {
    const Folder folder;
    TlsFiles files = folder.put(authority(), authority().issue());
    files.key = folder.path / "absent.pem";
    expect(refusal(files), {"absent.pem", "--tls-key", "No such file"});
    files.key = folder.path;
    expect(refusal(files), {folder.path.string(), "--tls-key", "irectory"});
    files.key.clear();
    expect(refusal(files), {"--tls-key"});
}

TEST(TlsFiles, AFileThatHoldsSomethingElseIsNamed) {
    const Folder folder;
    const Issued issued = authority().issue();
    const TlsFiles good = folder.put(authority(), issued);
    for (const std::string & text : {std::string(), std::string("not PEM\n"), issued.key}) {
        TlsFiles files = good;
        files.cert = folder.put("wrong.pem", text);
        expect(refusal(files), {"wrong.pem", "--tls-cert", "no PEM certificate"});
        files = good;
        files.client_ca = folder.put("wrong.pem", text);
        expect(refusal(files), {"wrong.pem", "--tls-client-ca", "no PEM certificate"});
    }
    TlsFiles files = good;
    files.key = folder.put("wrong.pem", issued.cert);
    expect(refusal(files), {"wrong.pem", "--tls-key", "no PEM private key"});
    files = good;
    std::string damaged = issued.cert + authority().cert();
    damaged[issued.cert.size() + 200] = '!';
    files.cert = folder.put("damaged.pem", damaged);
    expect(refusal(files), {"damaged.pem", "certificate 2", "damaged"});
}

TEST(TlsFiles, AKeyOfAnotherCertificateIsRefused) {
    const Folder folder;
    TlsFiles files = folder.put(authority(), authority().issue());
    files.key = folder.put("other-key.pem", authority().issue().key);
    expect(refusal(files), {"other-key.pem", "worker.pem", "CN=worker"});
}

TEST(TlsFiles, WhatIsOutOfItsTimeIsRefused) {
    const Folder folder;
    TlsFiles files = folder.put(authority(), authority().issue({"old", -3, -1}));
    expect(refusal(files), {"worker.pem", "CN=old", "expired on"});
    files = folder.put(authority(), authority().issue({"early", 1, 3}));
    expect(refusal(files), {"worker.pem", "CN=early", "not valid before"});
    files = folder.put(authority(), authority().issue());
    const std::string old = authority().issue({"old", -3, -1}).cert;
    files.client_ca = folder.put("old-ca.pem", old);
    expect(refusal(files), {"old-ca.pem", "--tls-client-ca", "expired on"});
    folder.put("old-ca.pem", old + authority().cert());
    EXPECT_EQ(refusal(files), "");  // a bundle may hold some that are not good any more
}

TEST(TlsFiles, AKeyWithAPassphraseIsRefusedWithoutAsking) {
    const Folder folder;
    const Issued issued = authority().issue();
    TlsFiles files = folder.put(authority(), issued);
    const std::shared_ptr<BIO> in(BIO_new_mem_buf(issued.key.data(), static_cast<int>(issued.key.size())), BIO_free);
    const std::shared_ptr<EVP_PKEY> key(PEM_read_bio_PrivateKey(in.get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
    const std::shared_ptr<BIO> out(BIO_new(BIO_s_mem()), BIO_free);
    char secret[] = "secret";
    PEM_write_bio_PrivateKey(out.get(), key.get(), EVP_aes_256_cbc(), reinterpret_cast<unsigned char *>(secret), 6, nullptr, nullptr);
    char * data = nullptr;
    const long size = BIO_get_mem_data(out.get(), &data);
    files.key = folder.put("locked.pem", {data, static_cast<size_t>(size)});
    expect(refusal(files), {"locked.pem", "passphrase"});
}

}  // namespace dgr
