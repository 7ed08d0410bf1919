// SPDX-License-Identifier: Apache-2.0
// Any input is a report of 'onehop bench' or an error in one line. The page is made of every report, its own JSON is
// the same report, and 'onehop compare' finds no difference between it and itself.
#include "bench/report.h"
#include "bench/saved.h"
#include "compare.h"
#include "fuzz.h"

namespace {

using namespace onehop;

cli::BenchRow row_of(std::uint64_t bytes, double us) {
  cli::BenchRow row;
  row.bytes = bytes;
  row.count = bytes / 4;
  row.algorithm = Algorithm::two_shot;
  row.time = {us, us * 0.9, us * 1.1};
  row.algbw = 2;
  row.busbw = 3;
  row.samples = 20;
  row.batch = 10;
  row.checked = true;
  return row;
}

/// What a machine with GPUs writes. Reports of host ranks are in files, as the command wrote them.
cli::BenchDocument gpu_document() {
  cli::BenchDocument document;
  document.build = {"0.1.0", "1a2b3c4"};
  document.origin = {"2025-03-01T12:00:00Z", "node7", "onehop bench all-reduce --peer nccl"};
  document.machine = {"a processor", 64, "Linux 6.1"};
  document.launcher = "onehop";
  document.gpus = cli::GpuMachine{{"NVIDIA H200", "NVIDIA H200"}, "580.1", "13.0", "2.28.9", 18};
  cli::BenchReport& report = document.reports.emplace_back();
  report.complete = true;
  report.options.cuda = true;
  report.options.ranks = 2;
  report.options.type = DType::bf16;
  report.options.mode = cli::BenchMode::eager;
  report.options.algorithm = Algorithm::two_shot;
  report.options.tuning = "table.json";
  report.notes = {"nccl-sym at 4096 bytes: <broken>"};
  report.rows = {row_of(1024, 2), row_of(4096, 4)};
  for (cli::BenchRow& row : report.rows) row.host_ns = 3100;
  report.rows[0].peers = {{"nccl", {8, 7.5, 9}, true}, {"nccl-sym", {5, 4.9, 5.5}, false}};
  report.rows[1].peers = {{"nccl", {3.2, 3.1, 3.3}, true}};
  return document;
}

void expect_lines(std::string_view text) {
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f)
      fuzz::finding("output with a control character");
  }
}

void compare_with_itself(const cli::BenchDocument& document) {
  const cli::ReportRows report = cli::rows_of(document, "r.json");
  if (report.times.empty()) return;
  const cli::Comparison comparison = cli::compare(report, report, 0.1);
  if (comparison.slower + comparison.faster + comparison.only_one + comparison.differences.size() != 0)
    fuzz::finding("a report differs from itself");
  expect_lines(to_text(comparison));
  expect_lines(to_json(comparison));
  expect_lines(to_html(comparison));
}

}  // namespace

std::vector<fuzz::Seed> fuzz::seeds() {
  return {{"gpus", to_json(gpu_document())}};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::parse([&] {
    cli::BenchDocument document;
    try {
      document = cli::parse_document(fuzz::view(data, size), "r.json");
    } catch (const Error& error) {
      fuzz::expect_plain(error.message());
      // Of a text that is no report at all. Then no field is wrong.
      if (error.code() == ErrorCode::invalid_argument) throw Error(ErrorCode::protocol, error.message());
      throw;
    }
    const std::string once = to_json(document);
    fuzz::expect_same(once, to_json(cli::parse_document(once, "r.json")));
    expect_lines(to_html(document));
    compare_with_itself(document);
  });
  return 0;
}
