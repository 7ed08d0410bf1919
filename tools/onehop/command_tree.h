// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace onehop::cli {

/// What the build asks the command for, and nobody else: it is in no help.
inline constexpr const char* kCommandTreeOption = "--command-tree";

/// Prints every subcommand and option as JSON, of which tools/onehop/command_documents.py makes the man page
/// and the completions of shells. Returns the exit code.
int print_command_tree(const CLI::App& app);

}  // namespace onehop::cli
