// What a benchmark shows: a table while it runs, JSON and a web page afterwards.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "bench/bench.h"

namespace onehop::cli {

/// "4 host ranks (processes), f32 sum, ordinary buffers, out of place, algorithm auto"
[[nodiscard]] std::string describe(const BenchOptions& options);

/// Rows as they come. On a terminal a line below them says what is being done; anywhere else there are rows
/// only and no control characters.
class Table {
 public:
  Table(std::FILE* out, bool terminal) : out_(out), terminal_(terminal) {}

  void begin(const BenchOptions& options);
  void progress(std::string_view what);
  void row(const BenchRow& row, const BenchOptions& options);

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
