// SPDX-License-Identifier: Apache-2.0
#include "group/environment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>

#include "onehop/job.h"

#include "base/check.h"
#include "base/env.h"
#include "group/job_directory.h"
#include "os/ancestor.h"
#include "os/open.h"

namespace onehop {
namespace {

constexpr std::size_t kMaxSecretBytes = 4096;

/// One launcher's variables. With `local_size`, all ranks must be local; with `nodes`, its value must be 1.
/// With neither, nothing is known about the number of machines.
struct Names {
  Launcher launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* nodes;
};
constexpr Names kOnehop{Launcher::onehop, "ONEHOP_RANK", "ONEHOP_SIZE", "LOCAL_RANK", nullptr, nullptr};
constexpr Names kTorchrun{Launcher::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK",
                          "LOCAL_WORLD_SIZE", nullptr};
constexpr Names kOpenMpi{Launcher::open_mpi,           "OMPI_COMM_WORLD_RANK",       "OMPI_COMM_WORLD_SIZE",
                         "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr};
constexpr Names kHydra{Launcher::hydra,   "PMI_RANK",        "PMI_SIZE",
                       "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr};
constexpr Names kSlurm{Launcher::slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
                       "SLURM_LOCALID", nullptr,        "SLURM_STEP_NUM_NODES"};

int parse_int(const char* name, const std::string& text, int lowest, int highest) {
  int value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  require(error == std::errc{} && end == last && value >= lowest && value <= highest,
          "environment variable {}='{}' must be an integer from {} to {}", name, text, lowest, highest);
  return value;
}

std::optional<int> get_int(const GetVariable& get, const char* name, int lowest, int highest) {
  const std::optional<std::string> text = get(name);
  if (!text) return std::nullopt;
  return parse_int(name, *text, lowest, highest);
}

/// Slurm sets SLURM_PROCID=0 in batch scripts and interactive shells too, although no srun started them.
bool is_slurm_task(const GetVariable& get) {
  if (!get("SLURM_PROCID")) return false;
  const std::optional<std::string> step = get("SLURM_STEP_ID");
  if (!step) return false;
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(step->data(), step->data() + step->size(), number);
  constexpr std::uint32_t kFirstSpecialStep =
      0xfffffff0;  // slurm.h: SLURM_BATCH_SCRIPT, SLURM_INTERACTIVE_STEP ...
  return error == std::errc{} && *end == '\0' && number < kFirstSpecialStep;
}

std::optional<Names> find_launcher(const GetVariable& get) {
  if (get("ONEHOP_RANK") || get("ONEHOP_SIZE")) return kOnehop;
  // torchrun is often started by srun or mpirun, once per machine, but never starts them.
  if (get("TORCHELASTIC_RUN_ID") && (get("RANK") || get("WORLD_SIZE"))) return kTorchrun;
  if (get("OMPI_COMM_WORLD_RANK") || get("OMPI_COMM_WORLD_SIZE")) return kOpenMpi;
  // Inside a Slurm job, Hydra starts its proxies with srun, so the ranks carry the variables of both. Slurm
  // sets PMI_RANK for its own tasks too, but no MPI_LOCALRANKID.
  const bool pmi = get(kHydra.rank) || get(kHydra.size);
  if (pmi && (get(kHydra.local_rank) || get(kHydra.local_size))) return kHydra;
  if (is_slurm_task(get)) return kSlurm;
  if (pmi) return kHydra;
  if (get("RANK") || get("WORLD_SIZE")) return kTorchrun;
  return std::nullopt;
}

Environment read_ranks(const GetVariable& get, const Names& names) {
  constexpr int kMost = 1 << 20;  // a plausibility limit only; the group has the real one
  Environment out;
  out.launcher = names.launcher;
  const auto needs = [&](const char* name, const char* other) {
    const std::optional<std::string> given = get(other);
    fail(ErrorCode::invalid_argument,
         "environment variable {} is not set although {}='{}' is; set both or neither", name, other,
         given.value_or(""));
  };
  // Slurm before 17.11 has no step-wide count; inside a step SLURM_NTASKS is the same number.
  const char* size_name = names.size;
  if (names.launcher == Launcher::slurm && !get(size_name)) size_name = "SLURM_NTASKS";
  if (!get(names.rank)) needs(names.rank, size_name);
  if (!get(size_name)) needs(size_name, names.rank);
  out.size = *get_int(get, size_name, 1, kMost);
  out.rank = *get_int(get, names.rank, 0, kMost);
  require(out.rank < out.size, "environment variable {}='{}' must be less than {}='{}'", names.rank, out.rank,
          size_name, out.size);

  out.local_size = out.size;
  if (names.local_size != nullptr) {
    out.local_size = get_int(get, names.local_size, 1, kMost).value_or(out.size);
    require(out.local_size <= out.size, "environment variable {}='{}' must not exceed {}='{}'",
            names.local_size, out.local_size, size_name, out.size);
    if (out.local_size != out.size) {
      fail(ErrorCode::refused,
           "onehop works inside one machine, but {} started {}='{}' ranks of which only {}='{}' run here",
           to_string(names.launcher), size_name, out.size, names.local_size, out.local_size);
    }
  }
  if (names.nodes != nullptr) {
    const char* const nodes_name = get(names.nodes) ? names.nodes : "SLURM_NNODES";
    const int nodes = get_int(get, nodes_name, 1, kMost).value_or(1);
    if (nodes != 1) {
      fail(
          ErrorCode::refused,
          "onehop works inside one machine, but {} spread {}='{}' ranks over {}='{}' machines; use --nodes=1",
          to_string(names.launcher), size_name, out.size, nodes_name, nodes);
    }
  }
  out.local_rank = get_int(get, names.local_rank, 0, kMost).value_or(out.rank);
  require(out.local_rank < out.local_size,
          "environment variable {}='{}' must be less than the {} ranks of this machine", names.local_rank,
          out.local_rank, out.local_size);
  return out;
}

/// Identifies a job, and tells restarts of a job apart. Values are joined with their names, so that two
/// different sets of variables never give the same text.
template <std::size_t N>
std::string join_identity(const GetVariable& get, Launcher launcher, const std::array<const char*, N>& names,
                          const GetStarter& starter = {}) {
  std::string identity(to_string(launcher));
  bool any = false;
  for (const char* name : names) {
    if (const std::optional<std::string> value = get(name)) {
      identity += fmt::format("\n{}={}", name, *value);
      any = true;
    }
  }
  if (!any && starter) {
    if (const std::optional<std::string> started_by = starter())
      return identity + "\nstarted by " + *started_by;
  }
  if (!any) {
    fail(ErrorCode::invalid_argument,
         "the variables of {} give ranks but nothing that tells this job from others ({} is not set); set "
         "ONEHOP_STORE=file:/directory to the same new directory for all ranks",
         to_string(launcher), names.front());
  }
  return identity;
}

std::string job_identity(const GetVariable& get, Launcher launcher, const GetStarter& starter) {
  switch (launcher) {
    case Launcher::torchrun:
      // MASTER_PORT only tells jobs apart: torchrun's own store listens on it.
      return join_identity(
          get, launcher,
          std::array{"MASTER_PORT", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"});
    case Launcher::open_mpi:
      return join_identity(get, launcher,
                           std::array{"PMIX_NAMESPACE", "PMIX_SERVER_URI2", "OMPI_MCA_ess_base_jobid",
                                      "OMPI_MCA_orte_precondition_transports"});
    case Launcher::hydra:
      // Intel MPI sets I_MPI_HYDRA_UUID. mpiexec sets PMI_PORT with -pmi-port and PMIX_NAMESPACE with -pmix;
      // other launchers that implement PMI set PMI_JOBID.
      return join_identity(
          get, launcher, std::array{"I_MPI_HYDRA_UUID", "PMI_JOBID", "PMIX_NAMESPACE", "PMI_PORT"}, starter);
    case Launcher::slurm:
      return join_identity(
          get, launcher,
          std::array{"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_CLUSTER_NAME", "SLURM_RESTART_COUNT"});
    case Launcher::onehop:
      break;
  }
  fail(ErrorCode::invalid_argument,
       "environment variable ONEHOP_STORE is not set although ONEHOP_RANK is; set it to file:/directory or "
       "tcp://host:port, the same for all ranks");
}

StoreSpec parse_store(const GetVariable& get, const std::string& text) {
  const auto complain = [&](std::string_view why) {
    fail(ErrorCode::invalid_argument,
         "environment variable ONEHOP_STORE='{}' {}; write file:/directory or tcp://host:port", text, why);
  };
  std::string_view rest(text);
  if (rest.starts_with("file:")) {
    rest.remove_prefix(5);
    if (rest.starts_with("//")) rest.remove_prefix(2);
    if (!rest.starts_with('/')) complain("must name a directory by its absolute path");
    return FileStoreSpec{std::filesystem::path(rest)};
  }
  if (!rest.starts_with("tcp://")) complain("is not a store");
  rest.remove_prefix(6);
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) complain("must have a host and a port");
  std::string_view host = rest.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty()) complain("must have a host and a port");
  const std::string_view port = rest.substr(colon + 1);
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc{} || end != port.data() + port.size() || number == 0) {
    complain("must have a port from 1 to 65535");
  }
  return TcpStoreSpec{std::string(host), number, get("ONEHOP_SECRET_FILE").value_or("")};
}

std::string read_secret(const std::filesystem::path& path) {
  const os::UniqueFd file = os::open_at(AT_FDCWD, path.string(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!file)
    fail_errno(errno, fmt::format("cannot read the secret file ONEHOP_SECRET_FILE='{}'", path.string()));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail_errno(errno, fmt::format("cannot examine '{}'", path.string()));
  require(S_ISREG(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & 077) == 0,
          "the secret file ONEHOP_SECRET_FILE='{}' must be a plain file of yours that nobody else may read "
          "(chmod 600)",
          path.string());
  std::string secret(kMaxSecretBytes + 1, '\0');
  const ssize_t got = ::read(file.get(), secret.data(), secret.size());
  if (got < 0) fail_errno(errno, fmt::format("cannot read '{}'", path.string()));
  secret.resize(static_cast<std::size_t>(got));
  while (secret.ends_with('\n') || secret.ends_with('\r')) secret.pop_back();
  require(!secret.empty() && secret.size() <= kMaxSecretBytes,
          "the secret file ONEHOP_SECRET_FILE='{}' must hold 1 to {} bytes", path.string(), kMaxSecretBytes);
  return secret;
}

}  // namespace

std::string_view to_string(Launcher launcher) {
  switch (launcher) {
    case Launcher::onehop:
      return "onehop";
    case Launcher::torchrun:
      return "torchrun";
    case Launcher::open_mpi:
      return "Open MPI";
    case Launcher::slurm:
      return "Slurm";
    case Launcher::hydra:
      return "Hydra (MPICH, Intel MPI)";
  }
  return "unknown";
}

Environment read_environment(const GetVariable& get, const GetStarter& starter) {
  const std::optional<Names> names = find_launcher(get);
  if (!names) {
    const std::optional<std::string> pmix = get("PMIX_RANK");
    fail(ErrorCode::not_found,
         "no launcher's variables are set (ONEHOP_RANK, RANK, OMPI_COMM_WORLD_RANK, PMI_RANK or SLURM_PROCID "
         "of a "
         "step){}; start the program with 'onehop launch -n 4 -- program', torchrun, mpirun or srun",
         pmix ? fmt::format(
                    "; PMIX_RANK='{}' alone does not tell the number of ranks: set ONEHOP_RANK, ONEHOP_SIZE "
                    "and ONEHOP_STORE yourself",
                    *pmix)
              : "");
  }
  Environment out = read_ranks(get, *names);
  const std::optional<std::string> store = get("ONEHOP_STORE");
  out.store = store ? parse_store(get, *store) : JobStoreSpec{job_identity(get, out.launcher, starter)};
  return out;
}

Environment read_environment() {
  // MPICH's hydra_pmi_proxy, or pmi_proxy of older Intel MPI: one per machine and job.
  return read_environment(env::get, [] { return os::find_ancestor("pmi_proxy"); });
}

std::shared_ptr<Store> open_store(const Environment& environment, Duration timeout) {
  if (const auto* file = std::get_if<FileStoreSpec>(&environment.store)) return file_store(file->directory);
  if (const auto* tcp = std::get_if<TcpStoreSpec>(&environment.store)) {
    TcpStoreOptions options;
    options.host = tcp->host;
    options.port = tcp->port;
    options.timeout = timeout;
    if (!tcp->secret_file.empty()) options.secret = read_secret(tcp->secret_file);
    return tcp_store(options);
  }
  return open_job_store(std::get<JobStoreSpec>(environment.store).identity, timeout);
}

std::optional<JobInfo> job_from_env() {
  if (!find_launcher(env::get)) return std::nullopt;
  const Environment environment = read_environment();
  return JobInfo{std::string(to_string(environment.launcher)), Rank{environment.rank}, environment.size,
                 Rank{environment.local_rank}};
}

std::shared_ptr<Store> store_from_env(Duration timeout) {
  return open_store(read_environment(), timeout);
}

}  // namespace onehop
