// One all-reduce of the conformance suite: how its data lies, what is forced, and running and checking it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "onehop/onehop.h"

#include "conformance/backend.h"
#include "conformance/reference.h"

namespace onehop::testing {

/// Where a call's data lies on the ranks.
enum class Placement {
  ordinary,
  symmetric,         ///< input and output in symmetric buffers, at the same offset on every rank
  symmetric_input,   ///< the input alone
  symmetric_output,  ///< the output alone
  sub_buffers,       ///< both in sub-buffers of one symmetric buffer
  even_ranks_only,   ///< symmetric on the even ranks, ordinary on the others
  displaced,         ///< symmetric, but at another offset on every rank
};
inline constexpr int kPlacementCount = 7;

struct AllReduceCase {
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;
  std::optional<Algorithm> algorithm;
  Placement placement = Placement::ordinary;
  bool in_place = false;
  std::size_t shift = 0;  ///< elements past an address that is a multiple of 64
  std::size_t start = 0;  ///< where in the streams the data begins

  [[nodiscard]] std::size_t bytes() const { return count * size_of(type); }
  [[nodiscard]] std::string describe() const;
};

/// A rank's memory, used for one case after another.
class Workspace {
 public:
  /// Collective. For cases of up to `max_bytes`.
  Workspace(const Backend& backend, Group& group, std::size_t max_bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// Makes the call and checks every byte it may and may not have written; returns the algorithm it used.
  /// Throws std::runtime_error that describes the case when something is wrong.
  Algorithm run(const AllReduceCase& call, const Streams& streams);

 private:
  /// The first byte for the call's data, kGuard bytes or more from what surrounds it.
  [[nodiscard]] std::byte* place(const AllReduceCase& call, bool output) const;
  void put(std::byte* at, const Bytes& content);
  void expect(std::byte* at, const Bytes& content, const AllReduceCase& call, const char* what);

  Group& group_;
  std::unique_ptr<RankMemory> memory_;
  std::size_t max_bytes_;
  std::byte* ordinary_[2] = {};
  SymmetricBuffer symmetric_[2];
  Bytes image_;
};

}  // namespace onehop::testing
