// SPDX-License-Identifier: Apache-2.0
// Rank, size and store of this process, from the variables launchers set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "onehop/store.h"
#include "onehop/types.h"

namespace onehop {

enum class Launcher : std::uint8_t { onehop, torchrun, open_mpi, slurm, hydra };
[[nodiscard]] std::string_view to_string(Launcher launcher);

/// ONEHOP_STORE=file:/directory
struct FileStoreSpec {
  std::filesystem::path directory;
  bool operator==(const FileStoreSpec&) const = default;
};
/// ONEHOP_STORE=tcp://host:port; ONEHOP_SECRET_FILE names the file with the secret
struct TcpStoreSpec {
  std::string host;
  std::uint16_t port = 0;
  std::filesystem::path secret_file;  ///< empty: no secret
  bool operator==(const TcpStoreSpec&) const = default;
};
/// Without ONEHOP_STORE: a directory of this user, derived identically by all processes with the same job
/// identity.
struct JobStoreSpec {
  std::string identity;
  bool operator==(const JobStoreSpec&) const = default;
};
using StoreSpec = std::variant<FileStoreSpec, TcpStoreSpec, JobStoreSpec>;

struct Environment {
  Launcher launcher = Launcher::onehop;
  int rank = 0;
  int size = 0;
  int local_rank = 0;
  int local_size = 0;
  StoreSpec store;
};

/// The value of a variable; nullopt when unset or empty.
using GetVariable = std::function<std::optional<std::string>(const char*)>;

/// Identifies the process that started all ranks of this job on this machine; nullopt if unknown.
using GetStarter = std::function<std::optional<std::string>()>;

/// Looks for ONEHOP_RANK, then for the variables of torchrun, Open MPI, Hydra and Slurm, and last for a bare
/// PMI_RANK or RANK. Hydra is the process manager of MPICH and Intel MPI. The order prefers the launcher that
/// most likely runs inside the others. Partial or inconsistent variables are Error{invalid_argument}, which
/// names variable and value. A job on several machines is Error{refused}; no variables at all are
/// Error{not_found}. `starter` is asked when Hydra set no variable that tells jobs apart. Pure.
[[nodiscard]] Environment read_environment(const GetVariable& get, const GetStarter& starter = {});
/// Reads the environment of this process.
[[nodiscard]] Environment read_environment();

/// Opens the store that the environment names, or throws Error{timeout} after `timeout`. A job directory is
/// `<runtime base>/onehop-<uid>/job-<hash>`, where the runtime base is env::runtime_base().
[[nodiscard]] std::shared_ptr<Store> open_store(const Environment& environment, Duration timeout);

}  // namespace onehop
