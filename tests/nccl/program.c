/* SPDX-License-Identifier: Apache-2.0 */
/* A program that was linked with NCCL. */
#include <stdio.h>

int ncclGetVersion(int* version);

int main(void) {
  int version = 0;
  const int result = ncclGetVersion(&version);
  printf("version %d\n", version);
  return result;
}
