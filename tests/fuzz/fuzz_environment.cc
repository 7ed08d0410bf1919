// SPDX-License-Identifier: Apache-2.0
// Any variables of launchers give a rank, a size and a store that fit together, or an error in one line. The input is as in
// /proc/PID/environ: NAME=VALUE, with a NUL between two.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "fuzz.h"
#include "group/environment.h"

namespace {

using namespace onehop;

std::map<std::string, std::string, std::less<>> variables_in(std::string_view text) {
  std::map<std::string, std::string, std::less<>> found;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find('\0'));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    if (const std::size_t equals = entry.find('='); equals != std::string_view::npos)
      found.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return found;
}

void check(const Environment& found) {
  if (found.size < 1 || found.rank < 0 || found.rank >= found.size) fuzz::finding("a rank outside the group");
  if (found.local_size != found.size || found.local_rank < 0 || found.local_rank >= found.local_size)
    fuzz::finding("a local rank outside the machine");
  if (const auto* const file = std::get_if<FileStoreSpec>(&found.store)) {
    if (!file->directory.is_absolute()) fuzz::finding("a store in a relative directory");
  } else if (const auto* const tcp = std::get_if<TcpStoreSpec>(&found.store)) {
    if (tcp->host.empty() || tcp->port == 0) fuzz::finding("a server without a host or port");
  } else if (std::get<JobStoreSpec>(found.store).identity.empty()) {
    fuzz::finding("a job that nothing tells from others");
  }
}

/// Written with spaces between the variables.
std::string environment(std::string text) {
  std::replace(text.begin(), text.end(), ' ', '\0');
  return text;
}

}  // namespace

std::vector<onehop::fuzz::Seed> onehop::fuzz::seeds() {
  const std::string onehop = environment("ONEHOP_RANK=1 ONEHOP_SIZE=4 ONEHOP_STORE=");
  const std::string pmi = environment("PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=4");
  const std::string torchrun = environment(
      "RANK=2 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "
      "TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0");
  return {
      {"onehop_file", onehop + "file:/run/job"},
      {"onehop_tcp", onehop + environment("tcp://[::1]:4711 ONEHOP_SECRET_FILE=/run/secret LOCAL_RANK=0")},
      {"torchrun", torchrun},
      {"open_mpi", environment("OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=3 "
                               "OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=2001666049")},
      {"slurm", environment("SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_STEP_NUM_TASKS=4 "
                            "SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=1")},
      {"intel_mpi", pmi + environment(" I_MPI_HYDRA_UUID=9d260000-7c26")},
      {"mpich", pmi + environment(" STARTER=1")},
      {"mpich_of_unknown_start", pmi, false},
      {"no_store", onehop.substr(0, onehop.find("ONEHOP_STORE")), false},
      {"no_host", onehop + "tcp://[]:4711", false},
      {"rank_beyond_size", environment("ONEHOP_RANK=4 ONEHOP_SIZE=4 ONEHOP_STORE=file:/run/job"), false},
      {"two_machines", environment("RANK=2 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_PORT=29500"), false},
      {"none", "", false}};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto variables = variables_in(fuzz::view(data, size));
  const auto get = [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(std::string_view(name));
    return found == variables.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
  };
  fuzz::accepted = false;
  try {
    check(read_environment(get, [&] { return get("STARTER"); }));
    fuzz::accepted = true;
  } catch (const Error& error) {
    fuzz::expect_plain(error.message());
    if (error.code() != ErrorCode::invalid_argument && error.code() != ErrorCode::refused &&
        error.code() != ErrorCode::not_found)
      fuzz::finding(error.message());
  }
  return 0;
}
