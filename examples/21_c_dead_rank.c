/* SPDX-License-Identifier: Apache-2.0 */
/* A C program that reduces on GPUs, or on the host. It waits with a deadline, and learns which rank died.
 *
 *   onehop launch -n 2 -- ./c_dead_rank [gpu]           "gpu": rank r takes GPU r; without it: host ranks
 *
 * The last rank kills itself after ten sums. onehop launch then ends the job with SIGTERM, which the others
 * ignore so that they can print their error; their exit code is 3. Every call, including joining and leaving,
 * ends within DEADLINE_MS. CUDA is used only to fill and read memory.
 */
#include <dlfcn.h>
#include <onehop/c_api.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 1 << 16, SUMS_BEFORE_DEATH = 10, DEADLINE_MS = 10000 };

/* The driver's copy function, loaded at run time: this program also starts without a driver. */
static int (*cuda_copy)(size_t to, size_t from, size_t bytes);

/* Whether there are at least `ranks` GPUs, which is the same on all ranks. This rank takes GPU `device`. */
static int use_cuda(int device, int ranks) {
  int (*init)(unsigned);
  int (*count)(int*);
  int (*retain)(void**, int);
  int (*set)(void*);
  int gpus = 0;
  void* context = NULL;
  void* const cuda = dlopen("libcuda.so.1", RTLD_NOW);
  if (cuda == NULL) return 0;
  *(void**)&init = dlsym(cuda, "cuInit");
  *(void**)&count = dlsym(cuda, "cuDeviceGetCount");
  *(void**)&retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
  *(void**)&set = dlsym(cuda, "cuCtxSetCurrent");
  *(void**)&cuda_copy = dlsym(cuda, "cuMemcpy");
  if (init(0) != 0 || count(&gpus) != 0 || gpus < ranks) return 0;
  if (retain(&context, device) == 0 && set(context) == 0) return 1;
  fprintf(stderr, "GPU %d cannot be used\n", device);
  exit(1);
}

static void copy(void* to, const void* from, size_t bytes) {
  if (cuda_copy == NULL) {
    memcpy(to, from, bytes);
  } else if (cuda_copy((size_t)to, (size_t)from, bytes) != 0) {
    fprintf(stderr, "cuMemcpy of %zu bytes failed\n", bytes);
    exit(1);
  }
}

/* Sums ones over all ranks. ONEHOP_OK if the sum was complete in time. */
static onehop_status_t sum(onehop_group_t* group, float* data) {
  static float ones[COUNT];
  for (int i = 0; i < COUNT; ++i) ones[i] = 1;
  copy(data, ones, sizeof ones);
  onehop_status_t status =
      onehop_all_reduce(group, data, data, COUNT, ONEHOP_DTYPE_F32, ONEHOP_OP_SUM, NULL, NULL, NULL);
  if (status == ONEHOP_OK) status = onehop_group_synchronize(group, NULL, DEADLINE_MS);
  if (status != ONEHOP_OK) return status;
  copy(ones, data, sizeof ones);
  for (int i = 0; i < COUNT; ++i) {
    if (ones[i] != (float)onehop_group_size(group)) {
      fprintf(stderr, "element %d of the sum is %g\n", i, ones[i]);
      exit(1);
    }
  }
  return ONEHOP_OK;
}

int main(int argc, char** argv) {
  onehop_job_info_t job;
  onehop_join_options_t options;
  onehop_group_t* group = NULL;
  onehop_buffer_t* buffer = NULL;
  onehop_status_t status = ONEHOP_OK;

  onehop_job_info_init(&job, sizeof job);
  onehop_join_options_init(&options, sizeof options);
  if (onehop_job_from_env(&job) != ONEHOP_OK) goto failed;
  if (argc > 1 && strcmp(argv[1], "gpu") == 0) options.device = job.local_rank;
  options.timeout_ms = DEADLINE_MS;
  if (options.device != ONEHOP_DEVICE_HOST && !use_cuda(options.device, job.world_size)) {
    printf("skipped: there are no %d GPUs\n", job.world_size);
    return 0;
  }
  signal(SIGTERM, SIG_IGN);
  if (onehop_group_from_env(&options, &group) != ONEHOP_OK) goto failed;
  if (onehop_group_allocate(group, COUNT * sizeof(float), &buffer) != ONEHOP_OK) goto failed;

  for (int done = 0; status == ONEHOP_OK; ++done) {
    if (job.rank == job.world_size - 1 && done == SUMS_BEFORE_DEATH) kill(getpid(), SIGKILL);
    status = sum(group, onehop_buffer_local(buffer));
  }
  if (status != ONEHOP_ERROR_PEER_LOST) goto failed;
  printf("rank %d: rank %d is lost: %s\n", job.rank, onehop_last_error_rank(), onehop_last_error());
  onehop_buffer_destroy(buffer);
  onehop_group_destroy(group);
  return 3;

failed:
  fprintf(stderr, "rank %d: %s\n", job.rank, onehop_last_error());
  return 1;
}
