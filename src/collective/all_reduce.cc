#include "kernel/host/all_reduce.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>

#include "onehop/collectives.h"

#include "base/check.h"
#include "collective/call.h"
#include "collective/first_step.h"
#include "collective/plan.h"
#include "group/state.h"
#include "os/fault_point.h"

namespace onehop {
namespace {

constexpr const char* kPhase = "all_reduce";

/// What is wrong with this rank's arguments. The others have to hear of it too, so it is not thrown here.
CallDefect find_defect(const std::byte* in, const std::byte* out, std::size_t count, DType type, ReduceOp op,
                       const CallOptions& options) {
  if (static_cast<int>(type) >= kDTypeCount) return CallDefect::unknown_type;
  if (static_cast<int>(op) >= kReduceOpCount) return CallDefect::unknown_op;
  if (options.algorithm &&
      (*options.algorithm == Algorithm::none || static_cast<int>(*options.algorithm) >= kAlgorithmCount)) {
    return CallDefect::unknown_algorithm;
  }
  const std::size_t element = size_of(type);
  if (count > (std::size_t{1} << 56) / element) return CallDefect::too_large;
  if (count == 0) return CallDefect::none;
  if (in == nullptr || out == nullptr) return CallDefect::null_pointer;
  const auto first = reinterpret_cast<std::uintptr_t>(in);
  const auto second = reinterpret_cast<std::uintptr_t>(out);
  if (first % element != 0 || second % element != 0) return CallDefect::misaligned;
  const std::size_t bytes = count * element;
  if (first != second && first < second + bytes && second < first + bytes) return CallDefect::overlap;
  return CallDefect::none;
}

/// Where the call's data lies in a symmetric buffer of the group, if it does.
struct Placement {
  std::shared_ptr<SymmetricBuffer::State> buffer;  ///< keeps the mapping while the call runs
  std::uint64_t number = 0;
  std::uint64_t offset = 0;
  std::array<std::byte*, kMaxHostRanks> peers{};  ///< the same place on every rank

  Placement(Group::State& group, const std::byte* data, std::size_t bytes) {
    std::tie(buffer, number) = group.find_buffer(data, bytes);
    if (buffer == nullptr) return;
    offset = static_cast<std::uint64_t>(data - buffer->data[static_cast<std::size_t>(group.rank().value)]);
    for (std::size_t r = 0; r < buffer->data.size(); ++r) peers[r] = buffer->data[r] + offset;
  }
};

/// One call on one rank.
class HostAllReduce {
 public:
  HostAllReduce(Group::State& group, const CallOptions& options)
      : group_(group),
        team_(group.team()),
        options_(options),
        deadline_(options.timeout.value_or(group.options().timeout)) {}

  Algorithm run(const std::byte* in, std::byte* out, std::size_t count, DType type, ReduceOp op) {
    const CallDefect defect = find_defect(in, out, count, type, op, options_);
    signature_ = {
        .count = count,
        .kind = static_cast<std::uint8_t>(CallKind::all_reduce),
        .dtype = static_cast<std::uint8_t>(type),
        .op = static_cast<std::uint8_t>(op),
        .algorithm = options_.algorithm ? static_cast<std::uint8_t>(*options_.algorithm) : kAnyAlgorithm,
        .rejected = static_cast<std::uint8_t>(defect)};
    if (defect != CallDefect::none) {
      begin();  // throws, on all ranks
      return Algorithm::none;
    }

    host::AllReduce call{.in = in, .out = out, .bytes = count * size_of(type), .type = type, .op = op};
    const AlgorithmPolicy policy = options_.algorithm ? AlgorithmPolicy::tuned : group_.options().policy;
    const Plan plan = plan_all_reduce({.ranks = team_.size(),
                                       .bytes = call.bytes,
                                       .type = type,
                                       .op = op,
                                       .policy = policy,
                                       .forced = options_.algorithm,
                                       .staging_bytes = team_.staging_bytes(),
                                       .tuning = &group_.tuning().table});
    call.chunk = plan.chunk;
    if (policy == AlgorithmPolicy::legacy) signature_.declined = legacy_alignment_ok(in, out) ? 0 : 1;

    // Small calls announce themselves along with their first data. The others first find out what the ranks
    // pass.
    const bool zero_copy = plan.algorithm == Algorithm::two_shot && call.bytes >= kMinZeroCopyBytes;
    std::optional<Placement> in_place;
    std::optional<Placement> out_place;
    if (zero_copy) {
      in_place.emplace(group_, in, call.bytes);
      out_place.emplace(group_, out, call.bytes);
      signature_.in_buffer = in_place->number;
      signature_.in_offset = in_place->offset;
      signature_.out_buffer = out_place->number;
      signature_.out_offset = out_place->offset;
    }
    if (zero_copy || call.bytes == 0 || plan.algorithm == Algorithm::none ||
        policy == AlgorithmPolicy::legacy) {
      begin();
      if (plan.algorithm == Algorithm::none || anyone_declined()) return Algorithm::none;
      if (call.bytes == 0) return plan.algorithm;
      if (same_everywhere(&host::Call::in_buffer, &host::Call::in_offset))
        call.in_peers = in_place->peers.data();
      if (same_everywhere(&host::Call::out_buffer, &host::Call::out_offset))
        call.out_peers = out_place->peers.data();
    }

    const auto step = [this] {
      if (begun_) {
        team_.publish();
        group_.wait_for_all(deadline_, kPhase);
      } else {
        begin();
      }
      os::fault_point("all_reduce.data", team_.rank());
    };
    const auto wait = [this](int r) { group_.wait_for(r, deadline_, kPhase); };
    if (plan.algorithm == Algorithm::one_shot) {
      host::one_shot(team_, call, step, wait);
    } else {
      host::two_shot(team_, call, step, wait);
    }
    // A peer whose call failed in its last step may have changed its memory while this rank read it. It
    // reported the failure first.
    if (call.in_peers != nullptr || call.out_peers != nullptr) group_.mesh().check(kPhase);
    return plan.algorithm;
  }

 private:
  void begin() {
    os::fault_point("all_reduce", team_.rank());
    begun_ = true;
    first_step(group_, signature_, deadline_, kPhase);
  }

  [[nodiscard]] bool anyone_declined() const {
    for (int r = 0; r < team_.size(); ++r) {
      if (team_.call(r).declined != 0) return true;
    }
    return false;
  }

  /// All ranks pass the same place of the same symmetric buffer. All ranks find the same answer.
  [[nodiscard]] bool same_everywhere(std::uint64_t host::Call::*buffer,
                                     std::uint64_t host::Call::*offset) const {
    const host::Call& first = team_.call(0);
    if (first.*buffer == 0) return false;
    for (int r = 1; r < team_.size(); ++r) {
      const host::Call& call = team_.call(r);
      if (call.*buffer != first.*buffer || call.*offset != first.*offset) return false;
    }
    return true;
  }

  Group::State& group_;
  host::Team& team_;
  const CallOptions& options_;
  os::CallDeadline deadline_;
  host::Call signature_;
  bool begun_ = false;
};

/// Defects that depend on this rank's memory alone. The others are the same on all ranks of a correct
/// program, and found by all alike.
bool is_local(CallDefect defect) {
  return defect == CallDefect::null_pointer || defect == CallDefect::misaligned ||
         defect == CallDefect::overlap;
}

/// Queues one call on this rank's GPU. Ranks do not meet on the host, unless ONEHOP_CHECK asks for it.
Algorithm device_all_reduce(Group::State& group, const std::byte* in, std::byte* out, std::size_t count,
                            DType type, ReduceOp op, Stream stream, const CallOptions& options) {
  const CallDefect defect = find_defect(in, out, count, type, op, options);
  const host::Call signature = {
      .count = count,
      .kind = static_cast<std::uint8_t>(CallKind::all_reduce),
      .dtype = static_cast<std::uint8_t>(type),
      .op = static_cast<std::uint8_t>(op),
      .algorithm = options.algorithm ? static_cast<std::uint8_t>(*options.algorithm) : kAnyAlgorithm,
      .rejected = static_cast<std::uint8_t>(defect)};
  if (group.checks_calls()) {
    os::CallDeadline deadline(options.timeout.value_or(group.options().timeout));
    first_step(group, signature, deadline, kPhase);
  }
  if (defect != CallDefect::none) {
    const Error error(
        ErrorCode::invalid_argument,
        fmt::format("{} of rank {} was rejected: {}", kPhase, group.rank().value, to_text(defect)),
        group.rank());
    // The other ranks wait in their kernels for one that will not come.
    if (is_local(defect)) group.fail_call(error, kPhase);
    throw error;
  }

  const DevicePlan plan =
      plan_device_all_reduce({.ranks = group.size(),
                              .bytes = count * size_of(type),
                              .type = type,
                              .op = op,
                              .policy = options.algorithm ? AlgorithmPolicy::tuned : group.options().policy,
                              .forced = options.algorithm,
                              .staging_bytes = group.staging_bytes(),
                              .copy_bytes = group.copy_bytes(),
                              .resident_blocks = group.resident_blocks(),
                              .tuning = &group.tuning().table});
  if (plan.algorithm == Algorithm::none || count == 0) return plan.algorithm;
  os::fault_point("all_reduce", group.rank().value);
  group.device()->all_reduce({.in = in,
                              .out = out,
                              .bytes = count * size_of(type),
                              .type = type,
                              .op = op,
                              .protocol = plan.protocol,
                              .launch_bytes = plan.launch_bytes,
                              .chunk = plan.chunk,
                              .grid = plan.grid,
                              .block = plan.block,
                              .early = plan.early},
                             stream);
  return plan.algorithm;
}

}  // namespace

Algorithm all_reduce(Group& group, const void* in, void* out, std::size_t count, DType type, ReduceOp op,
                     Stream stream, const CallOptions& options) {
  Group::State& state = group.state();
  return state.call(kPhase, [&] {
    if (state.device() != nullptr) {
      const Algorithm used =
          device_all_reduce(state, static_cast<const std::byte*>(in), static_cast<std::byte*>(out), count,
                            type, op, stream, options);
      state.count_usage(used);
      return used;
    }
    HostAllReduce call(state, options);
    const Algorithm used =
        call.run(static_cast<const std::byte*>(in), static_cast<std::byte*>(out), count, type, op);
    state.count_usage(used);
    return used;
  });
}

}  // namespace onehop
