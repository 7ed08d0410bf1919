// SPDX-License-Identifier: Apache-2.0
// Tuning tables choose the algorithm of a collective by message size. The library has a table of its own;
// `onehop tune` measures one on a machine and writes it to a file. Groups use that file through
// JoinOptions::tuning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/export.h"
#include "onehop/types.h"

namespace onehop {

enum class Backend : std::uint8_t { host, cuda };

/// Element types that share one choice between GPUs.
enum class TypeClass : std::uint8_t {
  floats,  ///< floating-point types, which Lamport buffers can carry
  any,     ///< all types
};

/// The outputs of a call.
enum class Buffers : std::uint8_t {
  any,        ///< any memory
  symmetric,  ///< symmetric memory, declared with CallOptions::symmetric
};

/// How the GPUs of a group are connected.
enum class Links : std::uint8_t {
  nvlink,  ///< NVLink between all pairs, through NVSwitch or directly
  pcie,    ///< some pairs have PCIe only
};

/// The names that tuning tables use.
[[nodiscard]] ONEHOP_API std::string_view to_string(Backend backend);
[[nodiscard]] ONEHOP_API std::string_view to_string(TypeClass types);
[[nodiscard]] ONEHOP_API std::string_view to_string(Buffers buffers);
[[nodiscard]] ONEHOP_API std::string_view to_string(Links links);
[[nodiscard]] ONEHOP_API TypeClass type_class(DType type);

/// An algorithm, and how its work is divided. Where a value is missing, the algorithm determines it from the
/// size of the call.
struct AlgorithmChoice {
  std::string algorithm;               ///< name, for example "lamport_two_shot" (algorithm_names)
  std::optional<std::size_t> chunk{};  ///< host: bytes per step, a multiple of 64
  std::optional<unsigned> blocks{};    ///< GPUs: maximum number of blocks
  std::optional<unsigned> threads{};   ///< GPUs: threads per block, a multiple of 32

  bool operator==(const AlgorithmChoice&) const = default;
};
/// For example "two_shot in chunks of 256K" or "ll_one_shot, 64 blocks of 128 threads".
[[nodiscard]] ONEHOP_API std::string to_string(const AlgorithmChoice& choice);

/// The largest table in text form.
inline constexpr std::size_t kMaxTuningBytes = 256 << 10;
inline constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

/// Selects an algorithm for messages of at most `up_to` bytes. The size of a message is that of one block
/// (CollectiveCall::count elements): of the input of all_reduce, all_gather, broadcast, reduce and gather, and
/// of the part for one rank in reduce_scatter, all_to_all and scatter.
struct TuningRow {
  Collective collective = Collective::all_reduce;
  Backend backend = Backend::host;
  int ranks = 0;
  TypeClass types = TypeClass::any;
  Buffers buffers = Buffers::any;
  std::uint64_t up_to = kNoLimit;  ///< bytes
  /// nullopt: the library's own table decides.
  std::optional<AlgorithmChoice> choice{};
  /// Not measured on this number of ranks or these links, but derived from rows that were.
  bool derived = false;

  bool operator==(const TuningRow&) const = default;
};

/// A call as far as the choice depends on it. All ranks pass the same values.
struct TuningQuery {
  Collective collective = Collective::all_reduce;
  Backend backend = Backend::host;
  int ranks = 0;
  DType type = DType::bf16;
  Buffers buffers = Buffers::any;
  std::uint64_t bytes = 0;
};

struct Tuning {
  std::string device;  ///< name of the GPUs it was measured on; empty if unspecified
  std::vector<TuningRow> rows;

  /// Parses strictly: Error{protocol} names `source`, the row, the field, its value, and what is allowed.
  [[nodiscard]] ONEHOP_API static Tuning from_json(std::string_view json,
                                                   std::string_view source = "tuning table");
  /// Writes one row per line. docs/wire-formats.md describes the format.
  [[nodiscard]] ONEHOP_API std::string to_json() const;
  /// Returns the first row that matches the call, or nullptr if none does.
  [[nodiscard]] ONEHOP_API const TuningRow* find(const TuningQuery& query) const;

  bool operator==(const Tuning&) const = default;
};

/// The library's own table for groups of this many ranks; `links` matters for GPUs only. Every call that has a
/// choice matches a row.
[[nodiscard]] ONEHOP_API Tuning default_tuning(Backend backend, int ranks, Links links = Links::nvlink);

/// The collectives that have a choice.
[[nodiscard]] ONEHOP_API std::vector<Collective> tunable_collectives(Backend backend);

/// The names of all algorithms of a collective that carry these types to these buffers, between this number of ranks or,
/// without `ranks`, any number. The texts are constants that end with a NUL.
[[nodiscard]] ONEHOP_API std::vector<std::string_view> algorithm_names(Backend backend, Collective collective,
                                                                       TypeClass types = TypeClass::floats,
                                                                       Buffers buffers = Buffers::symmetric,
                                                                       std::optional<int> ranks = {});

/// The choices worth measuring for these calls; nullopt, the library's own choice, comes first.
[[nodiscard]] ONEHOP_API std::vector<std::optional<AlgorithmChoice>> candidate_choices(
    Backend backend, Collective collective, int ranks, TypeClass types, Buffers buffers);

}  // namespace onehop
