#include "session/session-table.h"

#include <openssl/crypto.h>

namespace dgr {

static uint64_t size_of(const KeptAnswer & answer) {
    uint64_t size = sizeof(KeptAnswer);
    if (answer.forward) {
        size += answer.forward->boundary().data().size();
    }
    if (answer.result) {
        size += answer.result->logits().size();
    }
    return size;
}

uint64_t Session::kept_bytes() const {
    uint64_t sum = 0;
    for (const KeptAnswer & answer : kept) {
        sum += size_of(answer);
    }
    return sum;
}

void Session::release(uint64_t sequence) {
    while (!kept.empty() && kept.front().sequence <= sequence) {
        kept.pop_front();
    }
}

void Session::bound_kept(uint64_t bytes) {
    uint64_t sum = kept_bytes();
    while (kept.size() > 1 && sum > bytes) {
        sum -= size_of(kept.front());
        kept.pop_front();
    }
}

const KeptAnswer * Session::find_kept(uint64_t sequence) const {
    if (kept.empty() || sequence < kept.front().sequence || sequence > kept.back().sequence) {
        return nullptr;
    }
    return &kept[sequence - kept.front().sequence];
}

Claim SessionTable::claim(const std::string & id, uint64_t epoch, const std::string & key) const {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) {
        return Claim::fresh;
    }
    if (!same_key(found->second.key, key)) {
        return Claim::foreign;
    }
    return epoch > found->second.epoch ? Claim::replaces : Claim::stale;
}

Session & SessionTable::put(Session session) {
    const std::string id = session.id;
    return sessions_.insert_or_assign(id, std::move(session)).first->second;
}

Session * SessionTable::find(const std::string & id) {
    const auto found = sessions_.find(id);
    return found == sessions_.end() ? nullptr : &found->second;
}

bool same_key(const std::string & a, const std::string & b) {
    return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace dgr
