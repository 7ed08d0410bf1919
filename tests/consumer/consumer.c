/* SPDX-License-Identifier: Apache-2.0 */
/* The C API from a C99 program. */
#include <onehop/c_api.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  onehop_store_t* store = NULL;
  char* value = NULL;
  size_t bytes = 0;
  if (strcmp(onehop_version(), ONEHOP_VERSION_STRING) != 0) return 1;
  if (onehop_dtype_size(ONEHOP_DTYPE_BF16) != 2) return 2;
  if (onehop_store_memory(&store) != ONEHOP_OK) return 3;
  if (onehop_store_set(store, "key", "value", 5, ONEHOP_TIMEOUT_DEFAULT) != ONEHOP_OK) return 4;
  if (onehop_store_get(store, "key", 0, &value, &bytes) != ONEHOP_OK) return 5;
  if (bytes != 5 || strcmp(value, "value") != 0) return 6;
  onehop_free(value);
  onehop_store_destroy(store);
  if (onehop_group_join(NULL, NULL, NULL) != ONEHOP_ERROR_INVALID_ARGUMENT) return 7;
  if (strstr(onehop_last_error(), "group") == NULL) return 8;
  printf("%s from C\n", onehop_version());
  return 0;
}
