// SPDX-License-Identifier: Apache-2.0
// driver_libraries_test.cc loads this as libnvidia-ml.so.1. nvmlInit_v2 counts its calls and returns what the
// test has set; the other functions that onehop requires exist and fail.
#define ONEHOP_EXPORT __attribute__((visibility("default")))

// NOLINTBEGIN(readability-identifier-naming): the names are the library's.
extern "C" {

ONEHOP_EXPORT int onehop_stand_in_inits = 0;
ONEHOP_EXPORT int onehop_stand_in_answer = 0;

ONEHOP_EXPORT int nvmlInit_v2() {
  ++onehop_stand_in_inits;
  return onehop_stand_in_answer;
}
ONEHOP_EXPORT const char* nvmlErrorString(int) {
  return "Driver Not Loaded";
}

ONEHOP_EXPORT int nvmlSystemGetDriverVersion() {
  return 999;
}
ONEHOP_EXPORT int nvmlDeviceGetHandleByPciBusId_v2() {
  return 999;
}
ONEHOP_EXPORT int nvmlDeviceGetNvLinkState() {
  return 999;
}
ONEHOP_EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2() {
  return 999;
}
}
// NOLINTEND(readability-identifier-naming)
