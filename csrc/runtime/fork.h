// Fork safety: a child of a process that has used the device must not touch the inherited client.
#pragma once

namespace tn::runtime {

// Starts watching for forks; called when the client starts.
void watch_forks();

// True in a child forked after the client had started.
bool in_forked_child() noexcept;

// Raises RuntimeError in such a child, saying what to do instead.
void check_not_forked();

}  // namespace tn::runtime
