// What a benchmark run is asked for and what it found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onehop/group.h"
#include "onehop/types.h"

namespace onehop::cli {

struct BenchOptions {
  std::string collective = "all-reduce";
  int ranks = 4;
  std::vector<std::uint64_t> sizes;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::optional<Algorithm> algorithm;  ///< empty: the library's choice
  int warmup = 5;
  std::optional<int> iterations;  ///< samples per size; empty: as many as fit in a fifth of a second
  bool in_place = false;
  bool symmetric = false;
  bool check = true;
  bool threads = false;
  std::string json_path;
  std::string html_path;
};

/// One size. Times are microseconds per call: of every sample the slowest rank counts.
struct BenchRow {
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  Algorithm algorithm = Algorithm::none;
  double median_us = 0;
  double min_us = 0;
  double p95_us = 0;
  double algbw = 0;  ///< GB/s as nccl-tests defines it
  double busbw = 0;
  int samples = 0;
  int batch = 0;  ///< calls per sample
  bool checked = false;
};

struct BenchReport {
  BenchOptions options;
  std::string launcher;  ///< who started the ranks
  std::vector<BenchRow> rows;
};

}  // namespace onehop::cli
