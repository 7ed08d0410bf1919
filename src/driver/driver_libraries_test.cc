// SPDX-License-Identifier: Apache-2.0
// CUDA and NVML are initialized once, at the first question. Each test runs in its own process, which loads a
// stand-in with the library's SONAME first: dlopen then returns the stand-in.
#include <dlfcn.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "driver/cuda_driver.h"
#include "driver/nvml.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;

class StandIn {
 public:
  explicit StandIn(const char* file) : library_(::dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) std::exit(1);
  }
  [[nodiscard]] int& inits() const { return number("onehop_stand_in_inits"); }
  [[nodiscard]] int& answer() const { return number("onehop_stand_in_answer"); }

 private:
  [[nodiscard]] int& number(const char* name) const {
    auto* const found = static_cast<int*>(::dlsym(library_, name));
    if (found == nullptr) std::exit(1);
    return *found;
  }
  void* library_;
};

/// Calls `find` twice with a library whose initialization returns `answer`, and prints the results to stderr.
template <class Find>
[[noreturn]] void ask_twice(const char* file, int answer, Find&& find) {
  const StandIn library(file);
  library.answer() = answer;
  const int before = library.inits();
  std::string first;
  std::string second;
  const bool found = find(&first) != nullptr;
  const bool again = find(&second) != nullptr;
  fmt::print(stderr, "{} before, {} after; first {} '{}', then {} '{}'\n", before, library.inits(), found,
             first, again, second);
  std::exit(0);
}

class Libraries : public ::testing::Test {
 protected:
  Libraries() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
using CudaLibrary = Libraries;
using NvmlLibrary = Libraries;

TEST_F(CudaLibrary, IsInitializedOnceAndAtTheFirstQuestion) {
  EXPECT_EXIT(ask_twice(ONEHOP_STAND_IN_CUDA, 0, &find_cuda_driver), ExitedWithCode(0),
              HasSubstr("0 before, 1 after; first true '', then true ''\n"));
}

TEST_F(CudaLibrary, ThatFindsNoGpuIsNotInitializedAgainAndSaysWhy) {
  EXPECT_EXIT(ask_twice(ONEHOP_STAND_IN_CUDA, CUDA_ERROR_NO_DEVICE, &find_cuda_driver), ExitedWithCode(0),
              AllOf(HasSubstr("0 before, 1 after; first false 'libcuda.so.1 is installed but finds no usable "
                              "GPU: CUDA error 100; "),
                    HasSubstr("then false 'libcuda.so.1 is installed but finds no usable GPU: ")));
}

TEST_F(NvmlLibrary, IsInitializedOnceAndAtTheFirstQuestion) {
  EXPECT_EXIT(ask_twice(ONEHOP_STAND_IN_NVML, kNvmlSuccess, &find_nvml), ExitedWithCode(0),
              HasSubstr("0 before, 1 after; first true '', then true ''\n"));
}

TEST_F(NvmlLibrary, ThatDoesNotStartIsNotStartedAgainAndSaysWhy) {
  EXPECT_EXIT(ask_twice(ONEHOP_STAND_IN_NVML, kNvmlDriverNotLoaded, &find_nvml), ExitedWithCode(0),
              HasSubstr("0 before, 1 after; "
                        "first false 'NVML does not start: Driver Not Loaded (NVML error 9)', "
                        "then false 'NVML does not start: Driver Not Loaded (NVML error 9)'\n"));
}

}  // namespace
}  // namespace onehop
