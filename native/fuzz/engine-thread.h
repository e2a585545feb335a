// The engine threads of a run without threads.

#pragma once

namespace dgr::fuzz {

// Does all that was posted to any of them.
void run_engines();

}  // namespace dgr::fuzz
