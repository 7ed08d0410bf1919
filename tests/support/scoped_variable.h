// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

namespace onehop::testing {

/// Sets a variable of this process's environment until destroyed. Ranks that are processes inherit it.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    (void)::setenv(name, value.c_str(), 1);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { (void)::unsetenv(name_); }

 private:
  const char* name_;
};

}  // namespace onehop::testing
