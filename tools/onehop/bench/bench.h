// SPDX-License-Identifier: Apache-2.0
// What a benchmark run is asked for and what it found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/group.h"
#include "onehop/types.h"

#include "bench/collective.h"
#include "binding.h"

namespace onehop::cli {

/// What a timed call on GPUs runs beside.
/// What kind of memory input and output lie in.
enum class Buffers : std::uint8_t {
  ordinary,
  symmetric,   ///< Group::allocate
  registered,  ///< ordinary, and then Group::register_buffer; of GPUs
};
[[nodiscard]] std::string_view to_string(Buffers buffers);

enum class BenchMode : std::uint8_t {
  chain,      ///< a graph of calls, one behind the other, over the same input and output
  dependent,  ///< the same, but each call's input is the output of the one before; where every rank has both
  isolated,   ///< one call per graph, each rank arriving at a random time; from the last arrival on
  eager,      ///< calls queued one by one, without a graph
};
[[nodiscard]] std::string_view to_string(BenchMode mode);
/// Error{invalid_argument} that lists what is known.
[[nodiscard]] BenchMode parse_bench_mode(std::string_view name);

struct BenchOptions {
  const Collective* collective = &collectives().front();
  int ranks = 4;
  std::vector<std::uint64_t> sizes;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;         ///< if it reduces
  double factor = 1;                   ///< of premul_sum
  Rank root{0};                        ///< if it has one
  std::optional<Algorithm> algorithm;  ///< empty: the library's choice
  int warmup = 5;
  std::optional<int> iterations;  ///< samples per size; empty: a choice by the time they take
  bool in_place = false;
  Buffers buffers = Buffers::ordinary;
  bool check = true;
  bool threads = false;
  bool cuda = false;  ///< ranks are GPUs; what follows is for them alone
  BenchMode mode = BenchMode::chain;
  std::optional<int> calls;      ///< per sample; empty: a choice by size
  bool cold = false;             ///< no call finds its data in a cache
  int parts = 1;                 ///< CollectiveCall::parts
  std::size_t copy_scratch = 0;  ///< JoinOptions::copy_scratch_bytes
  bool nccl = false;             ///< measure NCCL beside us
  std::string tuning;            ///< file of the table the group follows; empty: none was named
  AlgorithmPolicy policy = AlgorithmPolicy::tuned;
  Binding binding = Binding::none;
  int repeat = 1;     ///< host ranks: measure every size so often, and report how far apart the figures are
  bool wide = false;  ///< the table has all columns, however many
  std::string json_path;
  std::string html_path;
};

/// "sum", or "none" where nothing is reduced.
[[nodiscard]] std::string_view op_name(const BenchOptions& options);
/// "f32 sum", "f32 premul_sum by 0.5", or "f32" where nothing is reduced.
[[nodiscard]] std::string type_and_op(const BenchOptions& options);

/// Microseconds per call: of every sample the slowest rank counts.
struct BenchTime {
  double median_us = 0;
  double min_us = 0;
  double p95_us = 0;
};

/// Another library's time for the same calls.
struct PeerTime {
  std::string name;
  BenchTime time;  ///< all 0: it has no result for this size
  bool checked = false;
};

/// One size.
struct BenchRow {
  std::uint64_t bytes = 0;  ///< of all blocks, as nccl-tests counts them
  std::uint64_t count = 0;  ///< elements of a block
  Algorithm algorithm = Algorithm::none;
  BenchTime time;
  double algbw = 0;  ///< GB/s as nccl-tests defines it
  double busbw = 0;
  int samples = 0;
  int batch = 0;  ///< calls per sample
  bool checked = false;
  double spread = 0;   ///< of repeated measurements: the slowest median over the quickest; 0: there was one
  double host_ns = 0;  ///< eager mode: what queuing a call took the host
  std::vector<PeerTime> peers;
};

/// The GPUs of a run.
struct GpuMachine {
  std::vector<std::string> names;  ///< by rank
  std::string driver;              ///< "580.65.06"; empty when unknown
  std::string cuda;                ///< the newest CUDA the driver speaks: "13.0"
  std::string nccl;                ///< "2.28.9"; empty without that peer
  std::optional<int> nvlinks;      ///< of the pair of ranks with the fewest
};

struct BenchReport {
  bool complete = false;  ///< every size was measured
  BenchOptions options;
  std::string launcher;  ///< who started the ranks
  std::vector<BenchRow> rows;
  std::optional<GpuMachine> gpus;
  std::vector<std::string> notes;  ///< what else should be known about the figures
};

}  // namespace onehop::cli
