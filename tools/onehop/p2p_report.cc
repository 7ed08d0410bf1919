// SPDX-License-Identifier: Apache-2.0
#include "p2p_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "onehop/version.h"

#include "base/check.h"
#include "origin.h"
#include "output.h"

namespace onehop::cli {
namespace {

std::string number(const std::optional<double>& value, int digits, double scale = 1) {
  return value ? fmt::format("{:.{}f}", *value * scale, digits) : "-";
}

/// "ok", "no access", or the names of the tests that did not pass.
std::string verdict(const PairReport& report) {
  if (report.ok()) return "ok";
  if (!report.attributes.access) return "no access";
  std::string names;
  for (const PeerTestResult& result : report.tests) {
    if (result.outcome != PeerOutcome::failed && result.outcome != PeerOutcome::hung) continue;
    names +=
        fmt::format("{}{} {}", names.empty() ? "" : ", ", to_string(result.test), to_string(result.outcome));
  }
  return names.empty() ? "not tested" : names;
}

nlohmann::ordered_json json_number(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

bool all_ok(const std::vector<PairReport>& reports) {
  return std::all_of(reports.begin(), reports.end(), [](const PairReport& report) { return report.ok(); });
}

bool any_hung(const std::vector<PairReport>& reports) {
  return std::any_of(reports.begin(), reports.end(), [](const PairReport& report) {
    return std::any_of(report.tests.begin(), report.tests.end(),
                       [](const PeerTestResult& result) { return result.outcome == PeerOutcome::hung; });
  });
}

std::string p2p_text(const std::vector<PairReport>& reports, bool colors) {
  std::string text = "from    to     store     load     copy   latency  check\n";
  text += "             GB/s     GB/s     GB/s        us\n";
  std::size_t good = 0;
  bool without_atomics = false;
  for (const PairReport& report : reports) {
    text += fmt::format("{:>4}  {:>4}  {:>8} {:>8} {:>8}  {:>8}  {}\n", report.from.value, report.to.value,
                        number(report.store_gbps, 1), number(report.load_gbps, 1),
                        number(report.copy_gbps, 1), number(report.latency_ns, 2, 1e-3),
                        colored(verdict(report), report.ok() ? Color::green : Color::red, colors));
    if (report.ok()) ++good;
    without_atomics = without_atomics || (report.ok() && !report.attributes.native_atomics);
  }
  text += "\n";
  for (const PairReport& report : reports) {
    if (!report.ok()) text += report.failure() + "\n";
  }
  text += fmt::format("{} of {} directions verified", good, reports.size());
  if (without_atomics) text += "; atomics are not native everywhere, and were not tried there";
  return text + "\n";
}

std::string p2p_json(const std::vector<PairReport>& reports, std::size_t bytes) {
  nlohmann::ordered_json pairs = nlohmann::ordered_json::array();
  for (const PairReport& report : reports) {
    nlohmann::ordered_json tests = nlohmann::ordered_json::array();
    for (const PeerTestResult& result : report.tests) {
      tests.push_back({{"test", to_string(result.test)},
                       {"outcome", to_string(result.outcome)},
                       {"detail", result.detail}});
    }
    pairs.push_back({{"from", report.from.value},
                     {"to", report.to.value},
                     {"ok", report.ok()},
                     {"access", report.attributes.access},
                     {"performance_rank", report.attributes.performance_rank},
                     {"native_atomics", report.attributes.native_atomics},
                     {"array_access", report.attributes.array_access},
                     {"store_gbps", json_number(report.store_gbps)},
                     {"load_gbps", json_number(report.load_gbps)},
                     {"copy_gbps", json_number(report.copy_gbps)},
                     {"latency_ns", json_number(report.latency_ns)},
                     {"tests", std::move(tests)}});
  }
  nlohmann::ordered_json document{{"format", "onehop p2p-check 1"},
                                  {"onehop", version()},
                                  {"bytes", bytes},
                                  {"ok", all_ok(reports)},
                                  {"pairs", std::move(pairs)}};
  return write_document(std::move(document));
}

}  // namespace onehop::cli
