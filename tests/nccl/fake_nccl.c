/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for NCCL behind libonehop_nccl.so. Its functions have signatures that are made to find lost arguments. With
 * ONEHOP_OLD_NCCL it is an older one, with fewer functions. */
#include <stdarg.h>
#include <stddef.h>

static int calls;

/* How many calls arrived here. */
int fake_nccl_calls(void) {
  return calls;
}

#ifdef ONEHOP_OLD_NCCL

int ncclGetVersion(int* version) {
  ++calls;
  *version = 22703;
  return 0;
}

#else

int pncclGetVersion(int* version) {
  ++calls;
  *version = 22809;
  return 0;
}
/* The name that programs call leads elsewhere: whoever forwards to it calls the wrong one. */
int ncclGetVersion(int* version) {
  *version = 0;
  return 3;
}

/* More integers and floating-point numbers than there are registers. Each has its own weight in the sum. */
double pncclPutSignal(int a, double b, long c, float d, int e, double f, int g, double h, int i, double j,
                      int k, double l, int m, double n, int o, double p, int q, double r, int s) {
  ++calls;
  return a + 2 * b + 3 * (double)c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j + 11 * k +
         12 * l + 13 * m + 14 * n + 15 * o + 16 * p + 17 * q + 18 * r + 19 * s;
}

typedef struct {
  char bytes[128];
} Id;
typedef struct {
  long values[5];
} Large;

/* A large argument by value; a large result goes to memory whose address is a hidden argument. */
Large pncclWinGetUserPtr(Id id, long last) {
  ++calls;
  const Large result = {{id.bytes[0], id.bytes[127], last, 4, 5}};
  return result;
}

double pncclSignal(int count, ...) {
  ++calls;
  va_list arguments;
  va_start(arguments, count);
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += va_arg(arguments, double);
  va_end(arguments);
  return sum;
}

int pncclAllReduce(void) {
  ++calls;
  return 0;
}
const char* pncclGetErrorString(int result) {
  ++calls;
  return result == 5 ? "the real text" : "?";
}
const char* pncclGetLastError(void* comm) {
  ++calls;
  (void)comm;
  return "the real last error";
}

#endif
