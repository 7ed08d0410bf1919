// SPDX-License-Identifier: Apache-2.0
// What a benchmark shows: a table while it runs, JSON and a web page afterwards.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "bench/bench.h"

namespace onehop::cli {

/// "4 host ranks (processes), f32 sum, ordinary buffers, out of place, algorithm auto, tuning shipped"
[[nodiscard]] std::string describe(const BenchOptions& options);

/// Our time over that of the fastest peer: "1.25" is us being a quarter slower. Nothing without peers.
[[nodiscard]] std::optional<double> ratio_to_peers(const BenchRow& row);

/// "4 x NVIDIA H200 (NV18), driver 580.65.06, CUDA 13.0; Intel(R) ..., 64 cores, Linux 6.1"
[[nodiscard]] std::string describe_machine(const std::optional<GpuMachine>& gpus);

/// Rows as they come. On a terminal a line below them says what is being done; anywhere else there are rows
/// only and no control characters.
class Table {
 public:
  Table(std::FILE* out, bool terminal) : out_(out), terminal_(terminal) {}

  void begin(const BenchOptions& options, const std::optional<GpuMachine>& gpus);
  void progress(std::string_view what);
  void row(const BenchRow& row, const BenchOptions& options);
  void note(std::string_view text);

 private:
  void clear_progress();

  std::FILE* out_;
  bool terminal_;
  bool progress_shown_ = false;
};

[[nodiscard]] std::string to_json(const BenchReport& report);
/// One self-contained page: table and plots, no scripts, nothing loaded from anywhere.
[[nodiscard]] std::string to_html(const BenchReport& report);

}  // namespace onehop::cli
