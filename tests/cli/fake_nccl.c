/* Stands for an NCCL that can register windows and has no memory for them; nothing here communicates. */
#include <stddef.h>
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
int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, void* comm, void* stream) {
  (void)in, (void)out, (void)count, (void)type, (void)op, (void)comm, (void)stream;
  return 0;
}
int ncclCommWindowRegister(void* comm, void* memory, size_t bytes, void** window, int flags) {
  (void)comm, (void)memory, (void)bytes, (void)window;
  return flags == 1 ? 0 : 4;
}
int ncclCommWindowDeregister(void* comm, void* window) {
  (void)comm, (void)window;
  return 0;
}
