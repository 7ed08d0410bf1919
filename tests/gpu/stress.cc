// SPDX-License-Identifier: Apache-2.0
// Endless random collectives, mostly small, in dependent chains on a stream, and captured in random graphs
// that are replayed between eager calls. Every element of every result is compared on the GPU with the
// expected value; the host checks the outcome periodically.
#include <fmt/core.h>
#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "onehop/onehop.h"

#include "gpu/stress_call.h"
#include "gpu/stress_checks.h"
#include "gpu/stress_plan.h"
#include "support/gpu.h"
#include "support/ranks.h"

namespace onehop::testing {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr const char* kUsage =
    R"(cuda_stress: random collectives on GPUs, every result compared bit by bit

  --operations N   eager operations (default: 10000000)
  --replays N      replays of random graphs, between eager operations (default: 100000)
  --seconds N      at most this long for each of the two (default: 240)
  --seed N         equal seeds give equal operations (default: 1)
  --ranks N        ranks, one per GPU (default: all GPUs that reach each other)
  --threads        ranks are threads of one process, not processes
  --collectives L  a comma-separated list of all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all,
                   all_to_all_v, gather, scatter, send_recv (default: all)
  --scratch-kib N  staging memory per rank; with less, large calls take several launches (default: the library's)

ONEHOP_TEST_GPUS   makes the ranks share this many GPUs. Kernels of processes that share one take turns, which
                   is slow; those of threads run at the same time.

Exit code 0: all results were right, or skipped because there are fewer than 2 GPUs. 1: a wrong result or an error,
with the options that reproduce it.
)";

struct Options {
  std::uint64_t operations = 10'000'000;
  std::uint64_t replays = 100'000;
  std::uint64_t seconds = 240;
  std::uint64_t seed = 1;
  int ranks = 0;
  bool threads = false;
  std::size_t scratch_bytes = 0;
  std::string collectives;  ///< as on the command line; empty: all

  [[nodiscard]] std::chrono::seconds limit() const { return std::chrono::seconds{2 * seconds + 90}; }
  [[nodiscard]] std::vector<Collective> kinds() const {
    return collectives.empty() ? all_stress_kinds() : parse_stress_kinds(collectives);
  }
};

// A check costs a barrier of the hosts. This is rare enough to be cheap, and frequent enough to report errors
// soon.
constexpr std::uint64_t kOperationsPerLook = 8192;
constexpr std::uint64_t kReplaysPerLook = 512;
// Graphs are destroyed and others created after this many replays.
constexpr std::uint64_t kReplaysPerPool = 2048;
static_assert(kReplaysPerPool % kReplaysPerLook == 0, "no replay may be queued then");
constexpr std::uint32_t kGraphs = 6;
constexpr int kGraphOps = 24;
constexpr int kOpsBesideGraph = 4;
// The parts of the arena for batches that run at the same time.
constexpr std::uint32_t kGraphPart = 0;
constexpr std::uint32_t kEagerPart = StressPlan::kPartBytes;
constexpr Duration kTimeout = seconds{20};

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string describe_offset(std::uint32_t offset) {
  return fmt::format("byte {} of {} memory", offset & ~kStressSymmetric,
                     (offset & kStressSymmetric) != 0 ? "symmetric" : "ordinary");
}

/// One rank, in a process of its own.
class Stress {
 public:
  Stress(const Options& options, Group& group)
      : options_(options),
        group_(group),
        gpu_(group.device()),
        plan_(options.seed, group.rank().value, group.size(), options.kinds()),
        symmetric_(group.allocate(2 * StressPlan::kPartBytes)),
        arena_{.ordinary = gpu_.allocate(2 * StressPlan::kPartBytes), .symmetric = symmetric_.local()},
        findings_(gpu_.make<StressFindings>(1)),
        checks_(gpu_, group.rank().value, group.size(), arena_, findings_) {}

  /// Returns a summary in a line or two; throws when something was wrong.
  std::string run() {
    prove_that_checks_check();
    group_.barrier();
    std::string done = eager_part();
    done += graph_part();
    return done + "calls:" + calls() + "\n";
  }

 private:
  [[nodiscard]] bool prints() const { return group_.rank() == Rank{0}; }

  void fill(const StressBatch& batch) const { checks_.fill(batch); }
  void check(const StressBatch& batch) {
    checks_.check(batch);
    for (const StressOp& op : batch) {
      const std::uint32_t in = input_count(op, group_.rank().value, group_.size());
      const std::uint32_t out = output_count(op, group_.rank().value, group_.size());
      compared_ += op.checked ? out : 0;
      bytes_ += std::uint64_t{std::max(in, out)} * element_bytes(op.type);
      ++calls_[static_cast<std::size_t>(op.kind)];
    }
    operations_ += batch.size();
  }
  void advance() {
    checks_.advance();
    ++round_;
  }

  void call(const StressBatch& batch, std::size_t begin, std::size_t end) const {
    make_calls(group_, arena_, std::span(batch).subspan(begin, end - begin), gpu_.stream());
  }

  /// A single wrong bit must be found, and nothing else.
  void prove_that_checks_check() {
    const StressBatch batch = plan_.batch(kMaxStressOps, kEagerPart);
    const auto results = [&](const StressOp& op) {
      return output_count(op, group_.rank().value, group_.size());
    };
    const auto flippable = std::find_if(batch.begin(), batch.end(),
                                        [&](const StressOp& op) { return op.checked && results(op) != 0; });
    fill(batch);
    call(batch, 0, batch.size());
    check(batch);
    group_.synchronize(gpu_.stream());
    look_at_findings();
    reset();
    if (flippable == batch.end()) return;  // another rank has the elements to check
    const auto index = static_cast<std::size_t>(flippable - batch.begin());
    const std::uint32_t element = results(*flippable) - 1;
    std::byte* const at = arena_.at(flippable->out) + std::size_t{element} * element_bytes(flippable->type);
    const std::byte flipped = gpu_.read(at, 1)[0] ^ std::byte{1};
    gpu_.upload(at, &flipped, 1);
    check(batch);
    const StressFindings found = gpu_.read(findings_, 1)[0];
    // Its memory may be the input of a later operation, but each check reads its own output only.
    if (found.wrong != 1 || found.index != index || found.element != element)
      throw std::logic_error(
          fmt::format("the check itself is broken: it found {} wrong elements instead of 1", found.wrong));
    reset();
  }
  void reset() {
    gpu_.write(findings_, std::vector<StressFindings>(1));
    compared_ = operations_ = bytes_ = 0;
    calls_ = {};
  }

  void look_at_findings() const {
    const StressFindings found = gpu_.read(findings_, 1)[0];
    if (found.wrong != 0) {
      throw std::runtime_error(fmt::format(
          "wrong result on rank {} of {}: batch {}, operation {} in it ({}; from {} to {}), "
          "element {}: {:#x} instead of {:#x}; {} elements are wrong so far, {} operations were made. "
          "Reproduce with "
          "--seed {} --ranks {} --operations {} --replays {}{}{}{}",
          group_.rank().value, group_.size(), found.at_round, found.index, describe(found.op),
          describe_offset(found.op.in), describe_offset(found.op.out), found.element, found.got, found.wanted,
          found.wrong, operations_, options_.seed, group_.size(), options_.operations, options_.replays,
          options_.threads ? " --threads" : "",
          options_.collectives.empty() ? "" : " --collectives " + options_.collectives,
          options_.scratch_bytes == 0 ? "" : fmt::format(" --scratch-kib {}", options_.scratch_bytes >> 10)));
    }
    if (found.checked != compared_ || found.round != round_)
      throw std::logic_error(fmt::format("{} elements of {} batches were compared, not {} of {}",
                                         found.checked, found.round, compared_, round_));
  }

  /// All ranks learn what each has found. Returns whether to continue, as rank 0 decides.
  bool look(bool wants_more) {
    std::string wrong;
    group_.synchronize(gpu_.stream());
    try {
      look_at_findings();
    } catch (const std::exception& error) {
      wrong = error.what();
    }
    const std::vector<std::string> all = group_.all_gather((wants_more ? "+" : "-") + wrong);
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (all[r].size() > 1)
        throw std::runtime_error(static_cast<int>(r) == group_.rank().value
                                     ? wrong
                                     : fmt::format("stopped, since rank {} found a wrong result", r));
    }
    return all[0][0] == '+';
  }

  void report(const char* what, const std::string& figures) {
    if (!prints() || since(reported_) < 10) return;
    reported_ = Clock::now();
    fmt::print("{}: {}\n", what, figures);
    std::fflush(stdout);
  }
  [[nodiscard]] std::string figures(std::uint64_t operations, Clock::time_point start) const {
    return fmt::format("{} operations in {:.1f} s, {:.0f} per second; {} elements compared so far, all right",
                       operations, since(start), static_cast<double>(operations) / since(start), compared_);
  }

  /// How often each collective was called.
  [[nodiscard]] std::string calls() const {
    std::string text;
    for (const Collective kind : options_.kinds()) {
      text += fmt::format("{} {} {}", text.empty() ? "" : ",", calls_[static_cast<std::size_t>(kind)],
                          stress_name(kind));
    }
    return text;
  }

  std::string eager_part() {
    if (options_.operations == 0) return "";
    const auto start = Clock::now();
    std::uint64_t next_look = kOperationsPerLook;
    for (bool more = true; more;) {
      const StressBatch batch = plan_.batch(kMaxStressOps, kEagerPart);
      fill(batch);
      call(batch, 0, batch.size());
      check(batch);
      advance();
      const bool enough = operations_ >= options_.operations;
      if (operations_ < next_look && !enough) continue;
      next_look = operations_ + kOperationsPerLook;
      more = look(!enough && since(start) < static_cast<double>(options_.seconds));
      report("eager", figures(operations_, start));
    }
    return fmt::format("eager: {}, {:.1f} GiB per rank\n", figures(operations_, start),
                       static_cast<double>(bytes_) / (1 << 30));
  }

  /// Graphs contain only these calls, so that a graph's calls and eager ones follow each other closely.
  std::string graph_part() {
    if (options_.replays == 0) return "";
    const auto start = Clock::now();
    const std::uint64_t before = operations_;
    std::vector<StressBatch> batches;
    std::vector<std::unique_ptr<Graph>> graphs;
    std::uint64_t replays = 0;
    std::uint64_t beside = 0;
    for (bool more = true; more;) {
      if (replays % kReplaysPerPool == 0) {
        graphs.clear();
        batches.clear();
        for (std::uint32_t g = 0; g < kGraphs; ++g) {
          batches.push_back(plan_.batch(kGraphOps, kGraphPart));
          const StressBatch& batch = batches.back();
          graphs.push_back(std::make_unique<Graph>(gpu_, [&] { call(batch, 0, batch.size()); }));
        }
        // Making a graph may wait for kernels of other threads on this GPU, which may wait for this rank.
        if (options_.threads) group_.barrier();
      }
      const std::uint32_t chosen = plan_.below(kGraphs);
      StressBatch eager;
      if (plan_.below(2) == 0) eager = plan_.batch(kOpsBesideGraph, kEagerPart);
      const std::size_t first = eager.empty() ? 0 : plan_.below(static_cast<std::uint32_t>(eager.size()) + 1);
      fill(batches[chosen]);
      if (!eager.empty()) fill(eager);
      call(eager, 0, first);
      graphs[chosen]->launch();
      call(eager, first, eager.size());
      check(batches[chosen]);
      if (!eager.empty()) check(eager);
      advance();
      beside += eager.size();
      ++replays;
      const bool enough = replays >= options_.replays;
      if (replays % kReplaysPerLook != 0 && !enough) continue;
      more = look(!enough && since(start) < static_cast<double>(options_.seconds));
      report("graphs", fmt::format("{} replays, {}", replays, figures(operations_ - before, start)));
    }
    const auto pools = (replays + kReplaysPerPool - 1) / kReplaysPerPool;
    return fmt::format("graphs: {} replays of {} graphs with {} eager operations between; {}\n", replays,
                       pools * kGraphs, beside, figures(operations_ - before, start));
  }

  const Options& options_;
  Group& group_;
  Gpu gpu_;
  StressPlan plan_;
  SymmetricBuffer symmetric_;
  StressArena arena_;
  StressFindings* findings_;
  StressChecks checks_;
  std::uint64_t compared_ = 0;
  std::uint64_t operations_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t round_ = 0;
  std::array<std::uint64_t, kStressKindCount> calls_{};
  Clock::time_point reported_ = Clock::now();
};

std::uint64_t number(const char* name, const char* text) {
  char* end = nullptr;
  errno = 0;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0' || errno != 0)
    throw std::invalid_argument(fmt::format("--{} '{}' is not a number", name, text));
  return value;
}

/// Empty if only help was requested.
std::optional<Options> parse(int argc, char** argv) {
  const option kOptions[] = {{"operations", required_argument, nullptr, 'o'},
                             {"replays", required_argument, nullptr, 'r'},
                             {"seconds", required_argument, nullptr, 't'},
                             {"seed", required_argument, nullptr, 's'},
                             {"ranks", required_argument, nullptr, 'n'},
                             {"threads", no_argument, nullptr, 'p'},
                             {"collectives", required_argument, nullptr, 'c'},
                             {"scratch-kib", required_argument, nullptr, 'k'},
                             {"help", no_argument, nullptr, 'h'},
                             {}};
  Options options;
  int index = 0;
  for (int which = 0; (which = ::getopt_long(argc, argv, "", kOptions, &index)) != -1;) {
    if (which == 'h') return std::nullopt;
    if (which == '?') throw std::invalid_argument("see --help");
    if (which == 'p') {
      options.threads = true;
      continue;
    }
    if (which == 'c') {
      options.collectives = optarg;
      (void)parse_stress_kinds(options.collectives);
      continue;
    }
    const std::uint64_t value = number(kOptions[index].name, optarg);
    if (which == 'o') options.operations = value;
    if (which == 'r') options.replays = value;
    if (which == 't') options.seconds = value;
    if (which == 's') options.seed = value;
    if (which == 'n') options.ranks = static_cast<int>(std::min<std::uint64_t>(value, 1000));
    if (which == 'k') options.scratch_bytes = static_cast<std::size_t>(value) << 10;
  }
  if (optind < argc)
    throw std::invalid_argument(fmt::format("'{}' is not an option; see --help", argv[optind]));
  if (options.seconds == 0 || options.seconds > 86'400)
    throw std::invalid_argument(fmt::format("--seconds {} is not within 1..86400", options.seconds));
  return options;
}

std::string run_rank(const Options& options, const std::shared_ptr<Store>& store, Rank rank) {
  JoinOptions join;
  join.device = DeviceId{0};
  join.timeout = kTimeout;
  join.scratch_bytes = options.scratch_bytes;
  Group group = Group::join(store, options_of(rank, options.ranks, join));
  return Stress(options, group).run();
}

std::vector<Exit> run_processes(const Options& options) {
  const TempDir dir;
  Processes processes(options.ranks,
                      [&](Rank rank) { return run_rank(options, file_store(dir.path()), rank); });
  return processes.wait(options.limit());
}

std::vector<Exit> run_as_threads(const Options& options) {
  (void)::alarm(static_cast<unsigned>(options.limit().count()));  // ends a process that hangs
  // With the 8 queues of the default, the work of one rank can wait behind that of another one that waits for it.
  (void)::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const std::shared_ptr<Store> store = memory_store();
  std::vector<Exit> exits(static_cast<std::size_t>(options.ranks));
  run_threads(options.ranks, [&](Rank rank) {
    Exit& exit = exits[static_cast<std::size_t>(rank.value)];
    try {
      exit.text = run_rank(options, store, rank);
      exit.code = 0;
    } catch (const std::exception& error) {
      exit.text = error.what();
    }
  });
  return exits;
}

int run(Options options) {
  // This process must not use CUDA before it forks.
  if (options.ranks == 0) {
    while (options.ranks < kMaxDevices && gpus_unavailable(options.ranks + 1, Sharing::no).empty())
      ++options.ranks;
    options.ranks = std::max(options.ranks, 2);
  }
  if (const std::string missing = forked_gpus_unavailable(options.ranks); !missing.empty()) {
    fmt::print("skipped: {}\n", missing);
    return 0;
  }
  fmt::print("cuda_stress: {} ranks as {}, seed {}, {} operations, {} replays\n", options.ranks,
             options.threads ? "threads" : "processes", options.seed, options.operations, options.replays);
  std::fflush(stdout);
  const std::vector<Exit> exits = options.threads ? run_as_threads(options) : run_processes(options);
  int code = 0;
  for (std::size_t r = 0; r < exits.size(); ++r) {
    if (exits[r].code == 0) continue;
    code = 1;
    fmt::print("rank {} {}: {}\n", r,
               exits[r].signal != 0 ? fmt::format("was ended by signal {}", exits[r].signal) : "failed",
               exits[r].text);
  }
  if (code == 0) fmt::print("{}", exits[0].text);
  return code;
}

}  // namespace
}  // namespace onehop::testing

int main(int argc, char** argv) {
  using namespace onehop::testing;
  try {
    if (const auto options = parse(argc, argv)) return run(*options);
    fmt::print("{}", kUsage);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_stress: {}\n", error.what());
    return 1;
  }
}
