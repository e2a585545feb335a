// What must hold whatever the input: says what did not, and aborts, which both kinds of drivers take for a finding.

#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace dgr::fuzz {

inline void require(bool held, const std::string & what) {
    if (!held) {
        std::fprintf(stderr, "INVARIANT BROKEN: %s\n", what.c_str());
        std::abort();
    }
}

}  // namespace dgr::fuzz
