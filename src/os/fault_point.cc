#include "os/fault_point.h"

#include <signal.h>
#include <unistd.h>

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
};

Fault parse_fault() {
  const std::string text = env::get("ONEHOP_FAULT").value_or("");
  const std::size_t first = text.find(':');
  const std::size_t second = text.find(':', first + 1);
  Fault fault;
  if (second == std::string::npos) return fault;
  fault.point = text.substr(0, first);
  (void)std::from_chars(text.data() + first + 1, text.data() + second, fault.rank);
  fault.action = text.substr(second + 1);
  return fault;
}

}  // namespace

const bool g_faults_armed = env::get("ONEHOP_FAULT").has_value();

void reach_fault_point(const char* point, int rank) {
  static const Fault fault = parse_fault();
  if (fault.point != point || fault.rank != rank) return;
  if (fault.action == "kill") {
    (void)::kill(::getpid(), SIGKILL);
  } else if (fault.action == "stop") {
    (void)::kill(::getpid(), SIGSTOP);
  } else if (fault.action == "exit") {
    ::_exit(3);
  } else if (fault.action == "delay") {
    std::this_thread::sleep_for(std::chrono::milliseconds{200});
  } else if (fault.action == "error") {
    fail(ErrorCode::system, "injected failure at {}", point);
  }
}

}  // namespace onehop::os::detail
