// SPDX-License-Identifier: Apache-2.0
// The options of a benchmark run and its results.
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
#include "origin.h"

namespace onehop::cli {

/// The memory of input and output.
enum class Buffers : std::uint8_t {
  ordinary,
  symmetric,   ///< Group::allocate
  registered,  ///< ordinary memory, passed to Group::register_buffer; GPUs only
};
inline constexpr Named<Buffers> kBuffers[] = {
    {"ordinary", Buffers::ordinary}, {"symmetric", Buffers::symmetric}, {"registered", Buffers::registered}};
[[nodiscard]] inline std::string_view to_string(Buffers buffers) {
  return name_of(kBuffers, buffers);
}

enum class BenchMode : std::uint8_t {
  chain,      ///< a graph of consecutive calls with the same input and output
  dependent,  ///< the input of each call is the output of the call before; where every rank has both
  isolated,   ///< one call at a time; ranks arrive at random times, timed from the last arrival
  eager,      ///< calls queued one by one, without a graph
};
inline constexpr Named<BenchMode> kBenchModes[] = {{"chain", BenchMode::chain},
                                                   {"dependent", BenchMode::dependent},
                                                   {"isolated", BenchMode::isolated},
                                                   {"eager", BenchMode::eager}};
[[nodiscard]] inline std::string_view to_string(BenchMode mode) {
  return name_of(kBenchModes, mode);
}

/// An NCCL to measure beside onehop.
struct NcclPeer {
  /// At the end of the name of what runs in symmetric windows.
  static constexpr std::string_view kWithWindows = "-sym";

  std::string name = "nccl";  ///< in reports
  std::string path;           ///< of the library, or a directory with it; empty: as load_nccl() finds it

  [[nodiscard]] std::string name_with_windows() const { return name + std::string(kWithWindows); }
};

struct BenchOptions {
  const Benchmark* collective = &collectives().front();
  int ranks = 4;
  std::vector<std::uint64_t> sizes;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;         ///< of collectives that reduce
  double factor = 1;                   ///< of premul_sum
  Rank root{0};                        ///< of collectives with a root
  std::optional<Algorithm> algorithm;  ///< empty: the library's choice
  int warmup = 5;
  std::optional<int> iterations;  ///< samples per size; empty: by their time
  bool in_place = false;
  Buffers buffers = Buffers::ordinary;
  bool check = true;
  bool threads = false;
  bool cuda = false;  ///< ranks are GPUs; the options up to `nccl` apply to them only
  BenchMode mode = BenchMode::chain;
  std::optional<int> calls;    ///< per sample; empty: by size
  bool cold = false;           ///< the data of a call is in no cache
  int parts = 1;               ///< BenchCall::parts
  std::vector<NcclPeer> nccl;  ///< measured too, in turns
  std::string tuning;          ///< file of the group's tuning table; empty: the library's own table
  Binding binding = Binding::none;
  int repeat = 1;          ///< host ranks: rounds over all sizes; the report shows their spread
  int predicted_from = 0;  ///< a prediction: the ranks of what was measured; else 0
  bool wide = false;       ///< the table has all columns
  std::string json_path;
  std::string html_path;
};

/// "sum", or "none" where nothing is reduced.
[[nodiscard]] std::string_view op_name(const BenchOptions& options);
/// "f32 sum", "f32 premul_sum by 0.5", or "f32" where nothing is reduced.
[[nodiscard]] std::string type_and_op(const BenchOptions& options);

/// Microseconds per call of the slowest rank in each sample.
struct BenchTime {
  double median_us = 0;
  double min_us = 0;
  double p95_us = 0;
};

/// Another library's time for the same calls.
struct PeerTime {
  std::string name;
  BenchTime time;  ///< all 0: no result for this size
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
  std::vector<double> rounds;  ///< the median of each round, ascending; empty: one round
  double host_ns = 0;          ///< eager mode: host time to queue a call
  std::vector<PeerTime> peers;
};

/// The GPUs of a run.
struct GpuMachine {
  std::vector<std::string> names;  ///< by rank
  std::string driver;              ///< "580.65.06"; empty when unknown
  std::string cuda;                ///< the newest CUDA version that the driver supports: "13.0"
  std::string nccl;  ///< "2.28.9", of several "2.28.9 (nccl), 2.32.3 (new)"; empty: none is measured
  std::optional<int> nvlinks;  ///< of the pair of GPUs with the fewest
};

/// The results of one collective.
struct BenchReport {
  bool complete = false;  ///< every size was measured
  BenchOptions options;
  std::vector<BenchRow> rows;
  std::vector<std::string> notes;
};

/// What a run measured, by which program, and on which machine.
struct BenchDocument {
  BuildInfo build;
  Origin origin;
  MachineInfo machine;
  std::optional<GpuMachine> gpus;
  std::string launcher;              ///< the program that started the ranks
  std::vector<BenchReport> reports;  ///< one per collective
};

}  // namespace onehop::cli
