// SPDX-License-Identifier: Apache-2.0
#include "base/variables.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <mutex>

#include "base/env.h"
#include "base/log.h"
#include "base/nearest.h"

namespace onehop {
namespace {

constexpr std::string_view kPrefix = "ONEHOP_";
constexpr std::string_view kFlag = "1 or 0 (also true, yes, on; false, no, off)";

/// Prefixes (after ONEHOP_) of further variables that only tests read.
constexpr std::string_view kOfTests[] = {"TEST_",         "CHAOS_",        "HOSTILE_",
                                         "FAILING_CALLS", "UPDATE_GOLDEN", "MODELS",
                                         "GPU_TESTS",     "CLEAN_ROOT",    "DEBIAN_MIRROR"};

bool is_one_of(std::string_view value, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), value) != words.end();
}

bool is_integer(std::string_view text, int lowest) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value >= lowest;
}

/// Accepts point:rank:action or point#visit:rank:action.
bool is_fault(std::string_view value) {
  const std::size_t first = value.find(':');
  const std::size_t second = first == std::string_view::npos ? first : value.find(':', first + 1);
  if (second == std::string_view::npos) return false;
  const std::string_view point = value.substr(0, first);
  const std::size_t visit = point.find('#');
  return !point.substr(0, visit).empty() &&
         (visit == std::string_view::npos || is_integer(point.substr(visit + 1), 1)) &&
         is_integer(value.substr(first + 1, second - first - 1), -1) &&
         is_one_of(value.substr(second + 1), {"kill", "stop", "exit", "error", "delay", "none"});
}

constexpr Variable kVariables[] = {
    {"ONEHOP_LOG", "library, command", "trace, debug, info, warn, error or off",
     "level of the log on stderr (default warn); info: a line per rank that joins; debug: one per call",
     [](std::string_view value) {
       return is_one_of(value, {"trace", "debug", "info", "warn", "warning", "error", "off"});
     }},
    {"ONEHOP_RUNTIME_DIR", "library, command", "a directory",
     "parent of private directories (default: XDG_RUNTIME_DIR, TMPDIR, TMP, TEMP, TEMPDIR or /tmp)"},
    {"ONEHOP_RANK", "from_env", "0 to size - 1", "this process's rank; 'onehop launch' sets it"},
    {"ONEHOP_SIZE", "from_env", "a number of ranks", "the number of ranks; 'onehop launch' sets it"},
    {"ONEHOP_STORE", "from_env", "file:/directory or tcp://host:port",
     "where ranks find each other, the same for all; 'onehop launch' sets it"},
    {"ONEHOP_SECRET_FILE", "from_env", "a file that only you can read", "the secret of a tcp:// store"},
    {"ONEHOP_HOST_ISA", "library", "avx512, avx2 or baseline",
     "instruction set of the host reductions (default: the best that the CPU supports)",
     [](std::string_view value) {
       return is_one_of(value, {"avx512", "avx2", "baseline"});
     }},
    {"ONEHOP_SINGLE_COPY", "library", kFlag,
     "host ranks read large data in each other's memory if the system permits it; 0 on any rank: never; 1: "
     "even "
     "if ranks share processors",
     env::is_flag},
    {"ONEHOP_TUNING", "library", "a file, as 'onehop tune' writes it",
     "tuning table of groups whose options name none; rank 0's applies"},
    {"ONEHOP_CHECK", "library", kFlag, "GPU ranks wait for each other's call in every call; for debugging",
     env::is_flag},
    {"ONEHOP_POISON", "library", kFlag,
     "failed calls on GPUs fill their floating-point output with NaN (default 1)", env::is_flag},
    {"ONEHOP_REQUIRE_VERIFIED_PEERS", "library", kFlag,
     "GPU groups require pairs that were verified since boot", env::is_flag},
    {"ONEHOP_ALLOW_OVERLAPPING_DEVICES", "library", kFlag, "several ranks may share a GPU", env::is_flag},
    {"ONEHOP_SHARE", "library", "auto, fabric, fd or ipc", "handle type of GPUs' symmetric memory",
     [](std::string_view value) {
       return is_one_of(value, {"auto", "fabric", "fd", "ipc"});
     }},
    {"ONEHOP_MAX_BLOCKS", "library", "1 to 65535",
     "blocks of a GPU kernel that wait for other ranks, at most two per multiprocessor (default: one): "
     "fewer, so that more than two groups have room at the same time; more, if there is only one"},
    {"ONEHOP_FORCE_FULLY_CONNECTED", "library, topo", kFlag,
     "for tests: GPUs count as fully connected regardless of their links", env::is_flag},
    {"ONEHOP_FAULT", "library",
     "point:rank:action or point#visit:rank:action; actions: kill, stop, exit, error, delay or none",
     "for tests: makes that rank fail at a named point", is_fault},
    {"ONEHOP_VLLM", "vLLM", kFlag, "vLLM's groups communicate through onehop", env::is_flag},
    {"ONEHOP_SGLANG", "SGLang", kFlag, "SGLang's all-reduces go through onehop", env::is_flag},
    {"ONEHOP_ENGINE_TIMEOUT", "vLLM, SGLang", "seconds, more than 0 and at most 86400",
     "timeout of the groups in inference engines (default 600)"},
    {"ONEHOP_FALLBACK", "onehop.torch", "nccl, gloo or none",
     "engine of torch's process groups on several machines or of more than 8 GPUs (default nccl)",
     [](std::string_view value) {
       return is_one_of(value, {"nccl", "gloo", "none"});
     }},
    {"ONEHOP_TORCH_ON_FAILURE", "onehop.torch", "abort or raise",
     "abort (default): a process that has not noticed a failure on its GPU in time ends",
     [](std::string_view value) {
       return is_one_of(value, {"abort", "raise"});
     }},
    {"ONEHOP_TORCH_FAILURE_GRACE", "onehop.torch", "seconds, 0 to 86400",
     "time to notice a failure on a GPU (default 5)"},
    {"ONEHOP_NCCL_LIBRARY", "command, libonehop_nccl", "a library, or a directory that holds it",
     "NCCL for 'bench --peer nccl' (default libnccl.so.2), and for what libonehop_nccl forwards"},
    {"ONEHOP_NCCL", "libonehop_nccl", "auto, alone or off",
     "alone: it uses no NCCL; off: it forwards every call to NCCL (default auto)",
     [](std::string_view value) {
       return is_one_of(value, {"auto", "alone", "off"});
     }},
    {"ONEHOP_NCCL_DEVICE", "libonehop_nccl", "cuda or cpu", "cpu: for tests: communicators move host memory",
     [](std::string_view value) {
       return is_one_of(value, {"cuda", "cpu"});
     }},
    {"ONEHOP_NCCL_TIMEOUT", "libonehop_nccl", "seconds, 1 to 86400",
     "timeout of its communicators' calls (default 1800)"},
    {"ONEHOP_FAILURE_FILE", "command", "a file",
     "internal: file in which a rank that the command starts reports its error"},
};

}  // namespace

std::span<const Variable> variables() {
  return kVariables;
}

const Variable* find_variable(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kVariables), std::end(kVariables),
                                         [&](const auto& each) { return each.name == name; });
  return found != std::end(kVariables) ? found : nullptr;
}

std::optional<std::string> complaint_about(const Variable& variable, std::string_view value) {
  if (value.empty() || variable.is_legal == nullptr || variable.is_legal(value)) return std::nullopt;
  return fmt::format("{}='{}' makes no sense; legal: {}", variable.name, value, variable.values);
}

std::vector<std::string> complaints_about(std::span<const std::string_view> environment) {
  std::vector<std::string> complaints;
  for (const std::string_view entry : environment) {
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with(kPrefix)) continue;
    const std::string_view value = entry.substr(std::min(entry.size(), name.size() + 1));
    if (const Variable* const known = find_variable(name)) {
      if (auto complaint = complaint_about(*known, value)) complaints.push_back(*std::move(complaint));
      continue;
    }
    // Compare without the common prefix, which does not help to find the intended name.
    const std::string_view rest = name.substr(kPrefix.size());
    const auto belongs = [&](std::string_view beginning) { return rest.starts_with(beginning); };
    if (std::any_of(std::begin(kOfTests), std::end(kOfTests), belongs)) continue;
    std::vector<std::string_view> names;
    for (const Variable& each : kVariables) names.push_back(each.name.substr(kPrefix.size()));
    const auto meant = nearest(rest, names);
    complaints.push_back(fmt::format("nothing reads {}{} ('onehop help environment' lists all variables)",
                                     name,
                                     meant ? fmt::format("; did you mean {}{}?", kPrefix, *meant) : ""));
  }
  return complaints;
}

void check_environment() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (env::get("ONEHOP_FAILURE_FILE")) return;
    std::vector<std::string_view> environment;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
      environment.emplace_back(*entry);
    for (const std::string& complaint : complaints_about(environment)) log::warn("{}", complaint);
  });
}

}  // namespace onehop
