// SPDX-License-Identifier: Apache-2.0
#include "os/fault_point.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "base/check.h"
#include "base/env.h"

namespace onehop::os::detail {
namespace {

struct Fault {
  std::string point;
  int rank = -1;
  std::string action;
  std::atomic<int> visits_left{1};
};

int parse_int(const std::string& text, int fallback) {
  (void)std::from_chars(text.data(), text.data() + text.size(), fallback);
  return fallback;
}

void parse_fault(Fault& fault) {
  const std::string text = env::get("ONEHOP_FAULT").value_or("");
  const std::size_t first = text.find(':');
  const std::size_t second = text.find(':', first + 1);
  if (second == std::string::npos) return;
  const std::string point = text.substr(0, first);
  const std::size_t visit = point.find('#');
  fault.point = point.substr(0, visit);
  if (visit != std::string::npos) fault.visits_left = parse_int(point.substr(visit + 1), 1);
  fault.rank = parse_int(text.substr(first + 1, second - first - 1), -1);
  fault.action = text.substr(second + 1);
}

}  // namespace

const bool g_faults_armed = env::get("ONEHOP_FAULT").has_value();
void (*g_before_fault)() = nullptr;

void reach_fault_point(const char* point, const char* part, int rank) {
  static Fault& fault = *[] {
    auto* parsed = new Fault;  // deliberately leaked: points are also reached during static destruction
    parse_fault(*parsed);
    return parsed;
  }();
  if (fault.point != std::string(point) + part || fault.rank != rank || fault.visits_left.fetch_sub(1) != 1)
    return;
  if (g_before_fault != nullptr) g_before_fault();
  if (fault.action == "kill") {
    (void)::kill(::getpid(), SIGKILL);
  } else if (fault.action == "stop") {
    (void)::kill(::getpid(), SIGSTOP);
  } else if (fault.action == "exit") {
    ::_exit(3);
  } else if (fault.action == "delay") {
    std::this_thread::sleep_for(std::chrono::milliseconds{200});
  } else if (fault.action == "error") {
    fail(ErrorCode::system, "injected failure at {}{}", point, part);
  }
}

}  // namespace onehop::os::detail
