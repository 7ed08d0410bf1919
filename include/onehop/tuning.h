// SPDX-License-Identifier: Apache-2.0
// Which way a collective goes, by size: measured on a machine (`onehop tune`), kept in a file, followed by
// groups (JoinOptions::tuning).
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

/// Element types that go the same way between GPUs.
enum class TypeClass : std::uint8_t {
  floats,  ///< those that mailboxes carry
  any,     ///< all types
};

/// As tables name them.
[[nodiscard]] ONEHOP_API std::string_view to_string(Backend backend);
[[nodiscard]] ONEHOP_API std::string_view to_string(TypeClass types);
[[nodiscard]] ONEHOP_API TypeClass type_class(DType type);

/// How bytes travel between GPUs. The library's own; here only a value that a table holds by name.
enum class DeviceProtocol : std::uint8_t;

/// As if there were no table.
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
  unsigned blocks = 0;  ///< at most so many; kAllBlocks: as many as the GPU can hold at once
  /// Per block, a multiple of 32; not for `chunks`, whose blocks have as many as they have roles for.
  unsigned threads = 0;

  bool operator==(const DeviceWay&) const = default;
};
inline constexpr unsigned kAllBlocks = ~0u;
using Way = std::variant<DefaultWay, HostWay, DeviceWay>;
/// "default", "two-shot in chunks of 256K", "packets, 64 blocks of 128 threads".
[[nodiscard]] ONEHOP_API std::string to_string(const Way& way);

/// Of a table as text.
inline constexpr std::size_t kMaxTuningBytes = 256 << 10;
inline constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

/// Messages of up to so many bytes go this way.
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
  std::string device;  ///< name of the GPUs it was measured on; empty: not said
  std::vector<TuningRow> rows;

  /// Strict: Error{protocol} names `source`, the row, the field, its value, and what would be right.
  [[nodiscard]] ONEHOP_API static Tuning from_json(std::string_view json,
                                                   std::string_view source = "tuning table");
  /// One row per line. The format is in docs/wire-formats.md.
  [[nodiscard]] ONEHOP_API std::string to_json() const;
  /// The way of the first row that such a call matches; nullptr when none does.
  [[nodiscard]] ONEHOP_API const Way* find(Collective collective, Backend backend, int ranks, DType type,
                                           std::uint64_t bytes) const;

  bool operator==(const Tuning&) const = default;
};

/// The ways that are worth measuring for types of a class, the default first.
[[nodiscard]] ONEHOP_API std::vector<Way> candidate_ways(Backend backend, int ranks, TypeClass types);

}  // namespace onehop
