// SPDX-License-Identifier: Apache-2.0
// driver_libraries_test.cc loads this as libcuda.so.1. cuInit counts its calls and returns what the test
// has set; every other function exists and fails.
#include <cstring>

#define ONEHOP_EXPORT __attribute__((visibility("default")))

// NOLINTBEGIN(readability-identifier-naming): the names are the library's.
extern "C" {

ONEHOP_EXPORT int onehop_stand_in_inits = 0;
ONEHOP_EXPORT int onehop_stand_in_answer = 0;

static int init(unsigned /*flags*/) {
  ++onehop_stand_in_inits;
  return onehop_stand_in_answer;
}
static int fail() {
  return 999;
}

ONEHOP_EXPORT int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long long, int*) {
  *function =
      std::strcmp(name, "cuInit") == 0 ? reinterpret_cast<void*>(&init) : reinterpret_cast<void*>(&fail);
  return 0;
}
}
// NOLINTEND(readability-identifier-naming)
