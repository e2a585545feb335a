// The sessions of a stage, by id. Rules of epochs and keys live here; the slots are the engine's.
//
// Used by the engine thread alone.

#pragma once

#include "session/session.h"

#include <map>

namespace dgr {

enum class Claim {
    fresh,     // no such session
    replaces,  // a known session under a higher epoch
    stale,     // the epoch is not above the one held
    foreign,   // the key is not the one that opened the session
};

class SessionTable {
public:
    // What opening (id, epoch, key) would be. Touches nothing.
    Claim claim(const std::string & id, uint64_t epoch, const std::string & key) const;

    // Takes the place of whatever has this id.
    Session & put(Session session);

    // Null when there is none.
    Session * find(const std::string & id);

    void   erase(const std::string & id) { sessions_.erase(id); }
    size_t size() const { return sessions_.size(); }

    std::map<std::string, Session> & all() { return sessions_; }

private:
    std::map<std::string, Session> sessions_;
};

// Compares in time that does not depend on where the keys differ.
bool same_key(const std::string & a, const std::string & b);

}  // namespace dgr
