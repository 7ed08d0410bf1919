// SPDX-License-Identifier: Apache-2.0
// onehop compare: compares two reports of 'onehop bench', row by row.
#include <memory>

#include "base/check.h"
#include "bench/saved.h"
#include "commands.h"
#include "compare.h"
#include "options.h"
#include "origin.h"
#include "output.h"

namespace onehop::cli {
namespace {

constexpr const char* kCompareFooter = R"(Examples:
  onehop bench all-reduce --json before.json
  onehop bench all-reduce --json after.json
  onehop compare before.json after.json
  onehop compare before.json after.json --html compare.html      both curves, and a table
  onehop compare before.json after.json --threshold 10 --fail    exit code 1 when anything is 10% slower

Rows of the same size are compared by their median time: ratio is that of B over that of A, so below 1 B is
faster. What lies within the threshold is the same, and so is what differs by less than the rounds of one run do
(bench --repeat): A's slowest round is not faster than B's fastest one. Settings in which the runs differ are named.

Exit code: 0 compared; 1 a file is no report, they have no size in common, or --fail and something is slower;
2 bad usage.)";

struct CompareArguments {
  std::string a;
  std::string b;
  double threshold = 5;  ///< percent
  std::string json;
  std::string html;
  bool fail = false;
};

ReportRows read_report(const std::string& path) {
  return rows_of(parse_document(read_input(path), path), printable(path));
}

int run_compare(const CompareArguments& arguments) {
  check_writable(arguments.json);
  check_writable(arguments.html);
  ReportRows a = read_report(arguments.a);
  const Comparison comparison = compare(std::move(a), read_report(arguments.b), arguments.threshold / 100);
  write_output(arguments.json, to_json(comparison));
  write_output(arguments.html, to_html(comparison));
  if (!is_stdout(arguments.json) && !is_stdout(arguments.html))
    print(wrapped(describe(origin()), "# ") + to_text(comparison, use_colors()));
  return arguments.fail && comparison.slower > 0 ? kExitFailed : kExitOk;
}

}  // namespace

void add_compare(CLI::App& app, std::function<int()>& run) {
  auto arguments = std::make_shared<CompareArguments>();
  CLI::App* const sub = app.add_subcommand("compare", "Compare two reports of 'bench', row by row");
  sub->footer(kCompareFooter);
  sub->add_option("A", arguments->a, "Report to compare with (bench --json)")->required()->type_name("FILE");
  sub->add_option("B", arguments->b, "Report that may be faster or slower")->required()->type_name("FILE");
  sub->add_option("--threshold", arguments->threshold, "Percent of time that count as the same")
      ->capture_default_str()
      ->type_name("PERCENT")
      ->check(finite(0, 1000, "a percentage from 0 to 1000"));
  sub->add_flag("--fail", arguments->fail, "Exit with 1 when a row is slower");
  sub->add_option("--json", arguments->json, "Write the comparison as JSON; '-': only that")
      ->type_name(kOutputType)
      ->check(output_path());
  sub->add_option("--html", arguments->html, "Write a page with both curves; '-': only that")
      ->type_name(kOutputType)
      ->check(output_path());
  sub->callback([arguments, &run] {
    for (const std::string& report : {arguments->a, arguments->b}) {
      for (const auto& [option, path] :
           {std::pair("--json", arguments->json), std::pair("--html", arguments->html)}) {
        if (!is_stdout(path) && same_destination(path, report))
          throw UsageError(fmt::format("{} '{}' would replace the report that is compared", option, report));
      }
    }
    refuse_same_destination("--json", arguments->json, "--html", arguments->html);
    run = [arguments] { return run_compare(*arguments); };
  });
}

}  // namespace onehop::cli
