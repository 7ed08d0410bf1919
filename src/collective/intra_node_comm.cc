// SPDX-License-Identifier: Apache-2.0
#include "onehop/intra_node_comm.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "onehop/collectives.h"

#include "base/check.h"
#include "base/deadline.h"
#include "base/env.h"
#include "base/log.h"
#include "call/check_call.h"
#include "collective/intra_node_rank.h"
#include "group/mesh.h"
#include "group/rendezvous.h"
#include "topology/forced.h"
#include "topology/probe.h"

namespace onehop {
namespace {

constexpr const char* kEnable = "ENABLE_INTRA_NODE_COMM";
constexpr const char* kPhase = "IntraNodeComm::rendezvous";
/// The minimum that Group::join accepts.
constexpr std::size_t kLeastScratch = 64 << 10;
constexpr std::size_t kMostScratch = std::size_t{1} << 40;
/// PyTorch's limits, inclusive.
constexpr std::size_t kOneShotBytes = 256 << 10;
constexpr std::size_t kTwoShotBytes = 10 << 20;

std::atomic<std::uint64_t>& all_reduces_of_process() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

}  // namespace

class IntraNodeComm::State {
 public:
  State(std::shared_ptr<Store> store, Rank rank, int size, std::size_t buffer_bytes, IntraNodeOptions options)
      : store_(std::move(store)),
        rank_(rank),
        size_(size),
        buffer_bytes_(buffer_bytes),
        options_(std::move(options)) {
    require(store_ != nullptr, "IntraNodeComm needs a store");
    require(size >= 1 && rank.value >= 0 && rank.value < size,
            "rank {} of a world of {}: ranks count from 0 to size - 1", rank.value, size);
    const std::string& name = options_.name;
    require(!name.empty() && name.size() <= 128 && name.find('/') == std::string::npos,
            "the name '{}' of an IntraNodeComm must have 1 to 128 characters and no '/'", name);
  }

  bool rendezvous() {
    if (group_) return true;
    reason_.clear();
    const Deadline deadline =
        Deadline::after(options_.timeout.count() < 0 ? kDefaultTimeout : options_.timeout);
    try {
      std::optional<std::string> refusal = decide(deadline);
      if (!refusal) {
        group_.emplace(Group::join_until(deadline, part_of_store("group"), join_options()));
        return true;
      }
      reason_ = *std::move(refusal);
    } catch (const Error& error) {
      // An error on which the ranks agree when they join: several hosts, users or versions. All ranks are
      // present then.
      if (error.code() != ErrorCode::refused) throw;
      reason_ = error.message();
    }
    if (rank_ == Rank{0}) log::warn("no IntraNodeComm '{}': {}", options_.name, reason_);
    return false;
  }

  [[nodiscard]] Group& group() {
    require(group_.has_value(),
            "rank {} of IntraNodeComm '{}' has no group: rendezvous() has not returned true", rank_.value,
            options_.name);
    return *group_;
  }

  void all_reduce(void* data, std::size_t count, DType type, Algorithm algorithm, Stream stream) {
    Group& group = this->group();
    const CallOptions options{.algorithm = algorithm, .timeout = options_.timeout};
    (void)onehop::all_reduce(group, data, data, count, type, ReduceOp::sum, stream, options);
    // A GroupCall refuses an unknown algorithm only at its end.
    if (static_cast<std::size_t>(algorithm) >= usage_.size()) return;
    usage_[static_cast<std::size_t>(algorithm)].fetch_add(1, std::memory_order_relaxed);
    all_reduces_of_process().fetch_add(1, std::memory_order_relaxed);
  }

  [[nodiscard]] std::array<std::uint64_t, kAlgorithmCount> usage() const {
    std::array<std::uint64_t, kAlgorithmCount> counts{};
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = usage_[i].load(std::memory_order_relaxed);
    return counts;
  }

  [[nodiscard]] bool formed() const { return group_.has_value(); }
  [[nodiscard]] const std::string& reason() const { return reason_; }
  [[nodiscard]] Rank rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] std::size_t buffer_bytes() const { return buffer_bytes_; }
  [[nodiscard]] const IntraNodeOptions& options() const { return options_; }

 private:
  /// The two steps have separate stores: a rank that has finished the first one does not disturb ranks that
  /// have not.
  [[nodiscard]] std::shared_ptr<Store> part_of_store(const char* step) const {
    return prefix_store(store_, fmt::format("intra_node_comm/{}", step));
  }

  [[nodiscard]] JoinOptions join_options() const {
    return {.rank = rank_,
            .size = size_,
            .device = options_.device,
            .timeout = options_.timeout,
            .name = options_.name,
            .scratch_bytes = std::max(buffer_bytes_, kLeastScratch),
            .allow_overlapping_devices = options_.allow_overlapping_devices};
  }

  /// This rank's description. Throws if options or environment variables are invalid.
  [[nodiscard]] IntraNodeRank describe() const {
    require(options_.timeout.count() >= 0, "the timeout must not be negative, got {} ms",
            options_.timeout.count());
    require(buffer_bytes_ > 0 && buffer_bytes_ <= kMostScratch,
            "a buffer of {} bytes is not within 1 byte..1 TiB", buffer_bytes_);
    require(options_.device.value >= DeviceId::host.value,
            "device {} is neither a device ordinal nor DeviceId::host", options_.device.value);
    IntraNodeRank own{.enabled = is_enabled(), .buffer_bytes = buffer_bytes_, .device = options_.device};
    // A rank that is disabled on purpose need not have a GPU.
    if (own.device.is_host() || !own.enabled) return own;
    own.forced = fully_connected_forced_by() != nullptr;
    own.allows_overlap =
        options_.allow_overlapping_devices || env::get_flag("ONEHOP_ALLOW_OVERLAPPING_DEVICES");
    if (options_.topology) {
      describe_device(*options_.topology, own);
      return own;
    }
    const DeviceInfo info = probe_identity(own.device);
    own.uuid = info.uuid;
    own.name = info.name;
    own.pci_bus_id = info.pci_bus_id;
    own.compute_capability = info.compute_capability;
    return own;
  }

  [[nodiscard]] std::vector<int> find_links(const std::vector<IntraNodeRank>& ranks) const {
    const IntraNodeRank& own = ranks[static_cast<std::size_t>(rank_.value)];
    if (options_.topology) return nvlinks_to(ranks, own, *options_.topology);
    // Uses bus ids: a peer's GPU may be hidden from this process by CUDA_VISIBLE_DEVICES. Links of a GPU that
    // several ranks share must be counted once.
    std::vector<std::string> bus_ids;
    for (const IntraNodeRank& each : ranks) {
      if (std::find(bus_ids.begin(), bus_ids.end(), each.pci_bus_id) == bus_ids.end())
        bus_ids.push_back(each.pci_bus_id);
    }
    const std::vector<int> matrix = probe_nvlinks(bus_ids);
    const auto number = [&](const IntraNodeRank& rank) {
      return static_cast<std::size_t>(std::find(bus_ids.begin(), bus_ids.end(), rank.pci_bus_id) -
                                      bus_ids.begin());
    };
    std::vector<int> links;
    for (const IntraNodeRank& each : ranks)
      links.push_back(matrix[number(own) * bus_ids.size() + number(each)]);
    return links;
  }

  /// Collective: gathers every rank's answer. If a rank cannot answer, all ranks throw its error.
  template <class Answer>
  [[nodiscard]] std::vector<IntraNodeRank> ask_all(IpcChannel::Mesh& mesh, const Deadline& deadline,
                                                   Answer&& answer) const {
    std::string own;
    Status refusal;
    try {
      own = encode(answer());
    } catch (const Error& error) {
      refusal = Status::of(error, rank_);
      refusal.message = fmt::format("{}: rank {}: {}", kPhase, rank_.value, error.message());
    }
    std::vector<IntraNodeRank> all;
    for (const std::string& raw : mesh.all_gather(own, deadline, kPhase, refusal))
      all.push_back(parse_intra_node_rank(raw));
    return all;
  }

  /// Collective: decides why there is no communicator, if so. The ranks use sockets of their own, since this
  /// decision precedes any shared memory.
  [[nodiscard]] std::optional<std::string> decide(const Deadline& deadline) const {
    // Larger groups cannot communicate, and every rank knows that by itself.
    if (size_ < 2 || size_ > kMaxHostRanks) return intra_node_size_refusal(static_cast<std::size_t>(size_));
    const std::shared_ptr<Store> store = part_of_store("rendezvous");
    const JoinOptions talk{.rank = rank_, .size = size_, .timeout = options_.timeout, .name = options_.name};
    const auto only_talks = [] {
      ShareMethods methods;
      methods.add(ShareBy::posix_fd);
      return Prepared{.device = "host", .share_methods = methods};
    };
    const Rendezvous met = onehop::rendezvous(*store, talk, only_talks, deadline);
    std::vector<IntraNodeRank> ranks = ask_all(*met.mesh, deadline, [&] { return describe(); });
    const auto wants_gpu = [](const IntraNodeRank& each) { return each.enabled && !each.device.is_host(); };
    if (std::all_of(ranks.begin(), ranks.end(), wants_gpu)) {
      ranks = ask_all(*met.mesh, deadline, [&] {
        IntraNodeRank own = ranks[static_cast<std::size_t>(rank_.value)];
        own.nvlinks = find_links(ranks);
        return own;
      });
    }
    return intra_node_refusal(ranks);
  }

  std::shared_ptr<Store> store_;
  Rank rank_;
  int size_;
  std::size_t buffer_bytes_;
  IntraNodeOptions options_;
  std::optional<Group> group_;
  std::string reason_;
  std::array<std::atomic<std::uint64_t>, kAlgorithmCount> usage_{};
};

bool IntraNodeComm::is_enabled() {
  return env::get_flag(kEnable);
}

IntraNodeComm::IntraNodeComm(std::shared_ptr<Store> store, Rank rank, int world_size,
                             std::size_t buffer_bytes, IntraNodeOptions options)
    : state_(std::make_unique<State>(std::move(store), rank, world_size, buffer_bytes, std::move(options))) {}
IntraNodeComm::IntraNodeComm(IntraNodeComm&&) noexcept = default;
IntraNodeComm& IntraNodeComm::operator=(IntraNodeComm&&) noexcept = default;
IntraNodeComm::~IntraNodeComm() = default;

bool IntraNodeComm::rendezvous() {
  return state().rendezvous();
}
const std::string& IntraNodeComm::reason() const {
  return state().reason();
}
Rank IntraNodeComm::rank() const {
  return state().rank();
}
int IntraNodeComm::size() const {
  return state().size();
}
DeviceId IntraNodeComm::device() const {
  return state().options().device;
}
std::size_t IntraNodeComm::buffer_bytes() const {
  return state().buffer_bytes();
}
Group& IntraNodeComm::group() const {
  return state().group();
}

Algorithm IntraNodeComm::select_all_reduce_algorithm(const void* data, std::size_t count, DType type) const {
  const State& self = state();
  if (!self.formed() || (type != DType::f32 && type != DType::bf16) || count > max_elements(type))
    return Algorithm::none;
  const std::size_t bytes = count * size_of(type);
  if (bytes > std::min(self.buffer_bytes(), kTwoShotBytes) || bytes % 4 != 0 ||
      reinterpret_cast<std::uintptr_t>(data) % 4 != 0)
    return Algorithm::none;
  return bytes <= kOneShotBytes ? Algorithm::one_shot : Algorithm::two_shot;
}

void IntraNodeComm::all_reduce(void* data, std::size_t count, DType type, Algorithm algorithm,
                               Stream stream) const {
  state().all_reduce(data, count, type, algorithm, stream);
}

void IntraNodeComm::synchronize(Stream stream) const {
  State& self = state();
  self.group().synchronize(stream, self.options().timeout);
}

std::array<std::uint64_t, kAlgorithmCount> IntraNodeComm::usage() const {
  return state().usage();
}

std::uint64_t IntraNodeComm::total_usage() {
  return all_reduces_of_process().load(std::memory_order_relaxed);
}

IntraNodeComm::State& IntraNodeComm::state() const {
  require(state_ != nullptr, "this IntraNodeComm was moved from");
  return *state_;
}

}  // namespace onehop
