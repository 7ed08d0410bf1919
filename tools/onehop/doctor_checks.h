// What onehop stands on, each tried for real.
#pragma once

#include <string>
#include <vector>

namespace onehop::cli {

enum class Health {
  works,
  fails,
  not_applicable,  ///< not needed here, or plain information
};

struct Finding {
  std::string section;
  std::string name;
  Health health = Health::works;
  std::string detail;      ///< one line: what was found, or why it fails
  std::string remedy;      ///< one line, for what fails
  bool essential = false;  ///< the host backend needs it
};

/// Everything but the end-to-end test. Takes well under a second; leaves nothing behind.
[[nodiscard]] std::vector<Finding> check_machine();

}  // namespace onehop::cli
