/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduce from C: each rank contributes its rank + 1, every rank ends up with the sum over all ranks.
 *
 *   onehop launch -n 4 -- ./c_api
 */
#include <onehop/c_api.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 20 };

/* Every call of the C API reports errors in the same manner, so one macro handles them all. */
#define CHECK(call)                                                                            \
  do {                                                                                         \
    onehop_status_t status = (call);                                                           \
    if (status != ONEHOP_OK) {                                                                 \
      fprintf(stderr, "%s: %s: %s\n", #call, onehop_status_name(status), onehop_last_error()); \
      exit(1);                                                                                 \
    }                                                                                          \
  } while (0)

int main(void) {
  onehop_group_t* group = NULL;
  onehop_buffer_t* buffer = NULL;
  onehop_algorithm_t used = ONEHOP_ALGORITHM_NONE;

  CHECK(onehop_group_from_env(NULL, &group));
  const int rank = onehop_group_rank(group);
  const int size = onehop_group_size(group);

  /* Collectives use symmetric memory without copying. Any other memory works as well. */
  CHECK(onehop_group_allocate(group, COUNT * sizeof(float), &buffer));
  float* data = onehop_buffer_local(buffer);
  for (int i = 0; i < COUNT; ++i) data[i] = (float)(rank + 1);

  CHECK(onehop_all_reduce(group, data, data, COUNT, ONEHOP_DTYPE_F32, ONEHOP_OP_SUM, NULL, NULL, &used));

  const float expected = (float)(size * (size + 1)) / 2;
  for (int i = 0; i < COUNT; ++i) {
    if (data[i] != expected) {
      fprintf(stderr, "rank %d: element %d is %g instead of %g\n", rank, i, data[i], expected);
      return 1;
    }
  }
  if (rank == 0) {
    printf("%d ranks summed %d floats to %g each (%s)\n", size, COUNT, expected,
           used == ONEHOP_ALGORITHM_ONE_SHOT ? "one-shot" : "two-shot");
  }

  onehop_buffer_destroy(buffer);
  onehop_group_destroy(group);
  return 0;
}
