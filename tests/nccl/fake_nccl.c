/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for NCCL behind libonehop_nccl.so. Its functions have signatures that are made to find lost arguments. With
 * ONEHOP_OLD_NCCL it is an older one, with fewer functions. */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static atomic_int calls;
static atomic_int collectives;

/* How many of them moved data. */
int fake_nccl_collectives(void) {
  return collectives;
}

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

/* Communicators move nothing. What is real is that a set-up waits for all ranks. */
typedef struct {
  int rank;
  int size;
} Comm;

static _Thread_local int depth;
static _Thread_local int group_result;
/* What the next collective, and the next end of a group, of this thread return. */
static _Thread_local int next_collective;
static _Thread_local int next_group_end;
void fake_nccl_fail(int collective, int group_end) {
  next_collective = collective;
  next_group_end = group_end;
}
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int waiting;
static int met;

/* Waits with the mutex until `size` ranks are here. */
static void wait_for_ranks(int size) {
  const int before = met;
  if (++waiting == size) {
    waiting = 0;
    ++met;
    pthread_cond_broadcast(&changed);
  }
  while (met == before) pthread_cond_wait(&changed, &mutex);
}

int pncclGetUniqueId(Id* id) {
  memset(id, 0, sizeof *id);
  memset(id->bytes, 'n', 40);
  return 0;
}
int pncclCommInitRank(Comm** comm, int size, Id id, int rank) {
  for (size_t i = 0; i < 40; ++i) {
    if (id.bytes[i] != 'n') return 4;
  }
  *comm = malloc(sizeof **comm);
  (*comm)->rank = rank;
  (*comm)->size = size;
  if (depth > 0) return 0;
  pthread_mutex_lock(&mutex);
  /* NCCL takes ranks with other bytes, also behind its own, for such of other machines. */
  static Id id_of_first;
  if (waiting == 0) id_of_first = id;
  const int differs = memcmp(&id, &id_of_first, sizeof id) != 0;
  wait_for_ranks(size);
  pthread_mutex_unlock(&mutex);
  return differs ? 4 : 0;
}
int pncclCommInitRankConfig(Comm** comm, int size, Id id, int rank, const void* config) {
  (void)config;
  return pncclCommInitRank(comm, size, id, rank);
}
int pncclCommInitRankScalable(Comm** comm, int size, int rank, int count, const Id* ids, const void* config) {
  (void)config;
  return count < 1 || count > size ? 4 : pncclCommInitRank(comm, size, ids[count - 1], rank);
}
int pncclCommInitAll(Comm** comms, int size, const int* devices) {
  (void)devices;
  for (int rank = 0; rank < size; ++rank) {
    comms[rank] = malloc(sizeof **comms);
    comms[rank]->rank = rank;
    comms[rank]->size = size;
  }
  return 0;
}
/* Numbers are used again, as in NCCL. */
static atomic_int reductions;
int pncclRedOpCreatePreMulSum(int* op, const void* scalar, int type, int residence, Comm* comm) {
  (void)type;
  (void)residence;
  (void)comm;
  *op = 5 + reductions++;
  return scalar == NULL ? 4 : 0;
}
int pncclRedOpDestroy(int op, Comm* comm) {
  (void)comm;
  --reductions;
  return op < 5 ? 4 : 0;
}
/* Does not wait for the other ranks, and knows neither its size nor its rank. */
int pncclCommSplit(Comm* comm, int color, int key, Comm** part, const void* config) {
  (void)key;
  (void)config;
  *part = NULL;
  if (color < 0) return 0;
  *part = malloc(sizeof **part);
  **part = *comm;
  return 0;
}
/* Waits for the ranks that remain. */
int pncclCommShrink(const Comm* comm, const int* excluded, int count, Comm** rest, const void* config,
                    int flags) {
  (void)config;
  if (excluded == NULL || rest == NULL || count < 1 || flags < 0 || flags > 1) return 4;
  for (int i = 0; i < count; ++i) {
    if (excluded[i] < 0 || excluded[i] >= comm->size) return 4;
  }
  *rest = malloc(sizeof **rest);
  **rest = *comm;
  (*rest)->size -= count;
  for (int i = 0; i < count; ++i) (*rest)->rank -= excluded[i] < comm->rank;
  if (depth > 0) return 0;
  pthread_mutex_lock(&mutex);
  wait_for_ranks((*rest)->size);
  pthread_mutex_unlock(&mutex);
  return 0;
}
int pncclCommRevoke(Comm* comm, int flags) {
  return comm == NULL || flags != 0 ? 4 : 0;
}
int pncclCommDestroy(Comm* comm) {
  free(comm);
  return 0;
}
int pncclCommAbort(Comm* comm) {
  return pncclCommDestroy(comm);
}
int pncclCommFinalize(Comm* comm) {
  return comm == NULL ? 4 : 0;
}
int pncclCommGetAsyncError(Comm* comm, int* error) {
  *error = 0;
  return comm == NULL ? 4 : 0;
}
int pncclCommUserRank(const Comm* comm, int* rank) {
  *rank = comm->rank;
  return 0;
}
int pncclGroupStart(void) {
  ++depth;
  return 0;
}
/* A function that failed in the group is its result. */
int pncclGroupEnd(void) {
  if (depth == 0) return 5;
  if (--depth > 0) return 0;
  const int result = group_result != 0 ? group_result : next_group_end;
  group_result = 0;
  next_group_end = 0;
  return result;
}
int pncclGroupSimulateEnd(void* info) {
  (void)info;
  return pncclGroupEnd();
}
/* A window is its communicator. */
int pncclCommWindowRegister(Comm* comm, void* data, size_t bytes, void** window, int flags) {
  if (comm == NULL || data == NULL || bytes == 0 || flags > 1) return 4;
  *window = comm;
  return 0;
}
int pncclCommWindowDeregister(Comm* comm, void* window) {
  return window == comm ? 0 : 4;
}
int pncclAllReduce(void) {
  ++calls;
  const int result = next_collective;
  next_collective = 0;
  if (result != 0) {
    if (depth > 0) group_result = result;
    return result;
  }
  ++collectives;
  return 0;
}
int pncclAllReduceConfig(void) {
  return pncclAllReduce();
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
