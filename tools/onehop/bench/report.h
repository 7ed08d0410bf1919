// SPDX-License-Identifier: Apache-2.0
// The output of a benchmark: a table while it runs, JSON and a web page afterwards.
#pragma once

#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "bench/bench.h"

namespace onehop::cli {

/// "4 host ranks (processes), f32 sum, ordinary buffers, out of place, algorithm auto, tuning shipped"
[[nodiscard]] std::string describe(const BenchOptions& options);

/// The time of onehop over that of the fastest peer: 1.25 means a quarter slower. nullopt without peers.
[[nodiscard]] std::optional<double> ratio_to_peers(const BenchRow& row);

[[nodiscard]] std::string two_decimals(double value);

/// "4 x NVIDIA H200 (NV18), driver 580.65.06, CUDA 13.0; Intel(R) ..., 64 cores, Linux 6.1"
[[nodiscard]] std::string describe_machine(const BenchDocument& document);

/// A run that begins now. Its reports are empty.
[[nodiscard]] BenchDocument begin_document(const std::vector<BenchOptions>& plan, std::string launcher);

/// Prints rows as they come. On a terminal verdicts are colored (use_colors) and a line below the rows shows the progress;
/// other outputs get only rows and no control characters.
class Table {
 public:
  Table(std::FILE* out, bool terminal) : out_(out), terminal_(terminal) {}

  /// Begins the table of a collective. The first one says where and when it is measured.
  void begin(const BenchOptions& options, const BenchDocument& document);
  void progress(std::string_view what);
  void row(const BenchRow& row, const BenchOptions& options);
  void note(std::string_view text);
  /// Error{system} when something of the table could not be written. Not at once: the measurements go on, for documents.
  void finish() const;

 private:
  void write(const std::string& text);
  void clear_progress();

  std::FILE* out_;
  bool terminal_;
  bool progress_shown_ = false;
  bool begun_ = false;
  int error_ = 0;  ///< the errno of the first write that failed
};

/// The member "run" of a report: how it was measured.
[[nodiscard]] nlohmann::json settings(const BenchOptions& options, const std::string& launcher);
/// One report: its "run" and "results" are members of the document. Several: it lists them as "reports".
[[nodiscard]] std::string to_json(const BenchDocument& document);
/// One self-contained page with table and plots, without scripts or external resources.
[[nodiscard]] std::string to_html(const BenchDocument& document);

}  // namespace onehop::cli
