/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for an NCCL that can register windows and has no memory for them; nothing here communicates. What is
 * called between ranks is written down. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  char bytes[128];
} Id;

int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
int ncclGetUniqueId(Id* id) {
  memset(id->bytes, 'i', sizeof id->bytes);
  return 0;
}
int ncclCommInitRank(void** comm, int ranks, Id id, int rank) {
  *comm = NULL;
  return id.bytes[0] == 'i' && id.bytes[127] == 'i' && rank < ranks ? 0 : 4;
}
int ncclCommDestroy(void* comm) {
  return comm == NULL ? 0 : 4;
}
int ncclCommAbort(void* comm) {
  return comm == NULL ? 0 : 4;
}
const char* ncclGetErrorString(int result) {
  return result == 3 ? "internal error" : "unknown";
}
const char* ncclGetLastError(void* comm) {
  (void)comm;
  return "first line\nsecond line";
}

static char calls[4096];

/* What was called since the last time, a word or line each; addresses count from 0. */
const char* fake_nccl_calls(void) {
  static char taken[sizeof calls];
  memcpy(taken, calls, sizeof calls);
  calls[0] = '\0';
  return taken;
}
static int note(const char* format, ...) {
  const size_t used = strlen(calls);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(calls + used, sizeof calls - used, format, arguments);
  va_end(arguments);
  return 0;
}
static unsigned at(const void* address) {
  return (unsigned)(uintptr_t)address;
}

int ncclGroupStart(void) {
  return note("start;");
}
int ncclGroupEnd(void) {
  return note("end;");
}
int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, void* comm, void* stream) {
  (void)comm, (void)stream;
  return note("AllReduce %u %u x%zu type%d op%d;", at(in), at(out), count, type, op);
}
int ncclAllGather(const void* in, void* out, size_t count, int type, void* comm, void* stream) {
  (void)comm, (void)stream;
  return note("AllGather %u %u x%zu type%d;", at(in), at(out), count, type);
}
int ncclReduceScatter(const void* in, void* out, size_t count, int type, int op, void* comm, void* stream) {
  (void)comm, (void)stream;
  return note("ReduceScatter %u %u x%zu type%d op%d;", at(in), at(out), count, type, op);
}
int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, void* comm, void* stream) {
  (void)comm, (void)stream;
  return note("Broadcast %u %u x%zu type%d root%d;", at(in), at(out), count, type, root);
}
int ncclReduce(const void* in, void* out, size_t count, int type, int op, int root, void* comm,
               void* stream) {
  (void)comm, (void)stream;
  return note("Reduce %u %u x%zu type%d op%d root%d;", at(in), at(out), count, type, op, root);
}
int ncclAlltoAll(const void* in, void* out, size_t count, int type, void* comm, void* stream) {
  (void)comm, (void)stream;
  return note("AlltoAll %u %u x%zu type%d;", at(in), at(out), count, type);
}
int ncclGather(const void* in, void* out, size_t count, int type, int root, void* comm, void* stream) {
  (void)comm, (void)stream;
  return note("Gather %u %u x%zu type%d root%d;", at(in), at(out), count, type, root);
}
int ncclScatter(const void* in, void* out, size_t count, int type, int root, void* comm, void* stream) {
  (void)comm, (void)stream;
  return note("Scatter %u %u x%zu type%d root%d;", at(in), at(out), count, type, root);
}
/* To no rank beyond 63, as in a group. */
int ncclSend(const void* in, size_t count, int type, int peer, void* comm, void* stream) {
  (void)comm, (void)stream;
  (void)note("send %u x%zu type%d to%d;", at(in), count, type, peer);
  return peer < 64 ? 0 : 4;
}
int ncclRecv(void* out, size_t count, int type, int peer, void* comm, void* stream) {
  (void)comm, (void)stream;
  return note("recv %u x%zu type%d from%d;", at(out), count, type, peer);
}
int ncclCommWindowRegister(void* comm, void* memory, size_t bytes, void** window, int flags) {
  (void)comm, (void)memory, (void)bytes, (void)window;
  return flags == 1 ? 0 : 4;
}
int ncclCommWindowDeregister(void* comm, void* window) {
  (void)comm, (void)window;
  return 0;
}
