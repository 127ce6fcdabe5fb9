// The one way from the dispatch path into Python: a signature that has no program yet.
#pragma once

#include <ATen/core/stack.h>

#include <string>
#include <vector>

#include "eager/operator.h"

namespace tn::eager {

// Names of the arguments of an op that may be operands of its programs. Takes the GIL.
std::vector<std::string> ask_operand_arguments(const std::string& op);

// Asks Python for the program of a signature. Takes the GIL; raises what shape inference raises.
EntryPtr resolve_miss(Operator& op, const torch::jit::Stack& stack, const Signature& signature);

// Counts a call that goes to the CPU for a reason known here; raises where the settings refuse it.
// Takes the GIL.
void announce_fallback(const Operator& op, const char* reason);

// Runs an op that is a Python function over other device ops. Takes the GIL.
void run_composite(const Entry& entry, Operator& op, torch::jit::Stack& stack);

}  // namespace tn::eager
