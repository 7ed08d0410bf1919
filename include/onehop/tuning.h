// SPDX-License-Identifier: Apache-2.0
// Tuning tables choose the algorithm of a collective by message size. `onehop tune` measures one on a machine
// and writes it to a file; groups use it through JoinOptions::tuning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "onehop/export.h"
#include "onehop/group.h"
#include "onehop/types.h"

namespace onehop {

enum class Backend : std::uint8_t { host, cuda };

/// Element types that share one choice of protocol between GPUs.
enum class TypeClass : std::uint8_t {
  floats,  ///< floating-point types, which Lamport buffers (mailboxes) can carry
  any,     ///< all types
};

/// The names that tuning tables use.
[[nodiscard]] ONEHOP_API std::string_view to_string(Backend backend);
[[nodiscard]] ONEHOP_API std::string_view to_string(TypeClass types);
[[nodiscard]] ONEHOP_API TypeClass type_class(DType type);

/// The protocol that moves data between GPUs. Private to the library; tables refer to it by name.
enum class DeviceProtocol : std::uint8_t;

/// The choice that the library makes without a table.
struct DefaultWay {
  bool operator==(const DefaultWay&) const = default;
};
struct HostWay {
  Algorithm algorithm = Algorithm::one_shot;
  std::size_t chunk = 0;  ///< bytes per step, a multiple of 64

  bool operator==(const HostWay&) const = default;
};
struct DeviceWay {
  DeviceProtocol protocol{};
  unsigned blocks = 0;  ///< upper limit; kAllBlocks: as many as the GPU can hold at once
  /// Per block, a multiple of 32. Ignored by `chunks`, whose blocks have as many threads as its roles need.
  unsigned threads = 0;

  bool operator==(const DeviceWay&) const = default;
};
inline constexpr unsigned kAllBlocks = ~0u;
using Way = std::variant<DefaultWay, HostWay, DeviceWay>;
/// For example "default", "two-shot in chunks of 256K" or "packets, 64 blocks of 128 threads".
[[nodiscard]] ONEHOP_API std::string to_string(const Way& way);

/// The largest table in text form.
inline constexpr std::size_t kMaxTuningBytes = 256 << 10;
inline constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

/// Selects `way` for messages of at most `up_to` bytes.
struct TuningRow {
  Collective collective = Collective::all_reduce;
  Backend backend = Backend::host;
  int ranks = 0;
  TypeClass types = TypeClass::any;
  std::uint64_t up_to = kNoLimit;  ///< bytes
  Way way;

  bool operator==(const TuningRow&) const = default;
};

struct Tuning {
  std::string device;  ///< name of the GPUs it was measured on; empty if unspecified
  std::vector<TuningRow> rows;

  /// Parses strictly: Error{protocol} names `source`, the row, the field, its value, and what is allowed.
  [[nodiscard]] ONEHOP_API static Tuning from_json(std::string_view json,
                                                   std::string_view source = "tuning table");
  /// Writes one row per line. docs/wire-formats.md describes the format.
  [[nodiscard]] ONEHOP_API std::string to_json() const;
  /// Returns the way of the first row that matches the call, or nullptr if none does.
  [[nodiscard]] ONEHOP_API const Way* find(Collective collective, Backend backend, int ranks, DType type,
                                           std::uint64_t bytes) const;

  bool operator==(const Tuning&) const = default;
};

/// The ways worth measuring for a type class, the default first.
[[nodiscard]] ONEHOP_API std::vector<Way> candidate_ways(Backend backend, int ranks, TypeClass types);

}  // namespace onehop
