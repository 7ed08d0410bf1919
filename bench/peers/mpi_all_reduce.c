/* MPI's all-reduce measured the way `onehop bench` measures ours, so that the two can be compared line by
 * line: ranks start a sample together, a sample is a batch of calls of at least 50 us, its time is the
 * slowest rank's, and the figure is the median over samples. f32, sum, out of place, every element checked
 * before timing counts.
 *
 * usage: mpirun -n N mpi_all_reduce BYTES...      prints one "bytes microseconds min p95 samples batch" line
 * per size. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMaxBatch = 100000, kMinSamples = 5, kMaxSamples = 1000 };
static const double kSampleUs = 50, kBudgetUs = 200000;

static float* in_data;
static float* out_data;
static int elements, rank_number, rank_count;

static double time_batch(int batch) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < batch; ++i)
    MPI_Allreduce(in_data, out_data, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  return (MPI_Wtime() - start) * 1e6;
}

static double slowest(double mine) {
  double all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return all;
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void check(void) {
  for (int i = 0; i < elements; ++i) in_data[i] = (float)((i * 7 + rank_number * 13) % 1000);
  memset(out_data, 0xff, (size_t)elements * sizeof(float));
  time_batch(1);
  for (int i = 0; i < elements; ++i) {
    float expected = 0;
    for (int r = 0; r < rank_count; ++r) expected += (float)((i * 7 + r * 13) % 1000);
    if (out_data[i] == expected) continue;
    fprintf(stderr, "rank %d: element %d is %g instead of %g\n", rank_number, i, out_data[i], expected);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

static void measure(size_t bytes) {
  elements = (int)(bytes / sizeof(float));
  in_data = malloc(bytes);
  out_data = malloc(bytes);
  if (in_data == NULL || out_data == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  check();

  for (int i = 0; i < 5; ++i) time_batch(1);
  int batch = 1;
  double sample_us = slowest(time_batch(batch));
  while (sample_us < kSampleUs && batch < kMaxBatch) {
    const double wanted = 1.5 * batch * kSampleUs / (sample_us > 0.01 ? sample_us : 0.01);
    batch = wanted > 2.0 * batch ? (int)wanted + 1 : 2 * batch;
    if (batch > kMaxBatch) batch = kMaxBatch;
    sample_us = slowest(time_batch(batch));
  }
  int samples = (int)(kBudgetUs / (sample_us > 1 ? sample_us : 1));
  if (samples < kMinSamples) samples = kMinSamples;
  if (samples > kMaxSamples) samples = kMaxSamples;
  MPI_Bcast(&batch, 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Bcast(&samples, 1, MPI_INT, 0, MPI_COMM_WORLD);

  double* times = malloc((size_t)samples * sizeof(double));
  double* worst = malloc((size_t)samples * sizeof(double));
  if (times == NULL || worst == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int s = 0; s < samples; ++s) times[s] = time_batch(batch) / batch;
  MPI_Allreduce(times, worst, samples, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  qsort(worst, (size_t)samples, sizeof(double), compare);
  if (rank_number == 0) {
    printf("%zu %.3f %.3f %.3f %d %d\n", bytes, (worst[(samples - 1) / 2] + worst[samples / 2]) / 2, worst[0],
           worst[(samples * 95 + 99) / 100 - 1], samples, batch);
    fflush(stdout);
  }
  free(times);
  free(worst);
  free(in_data);
  free(out_data);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_number);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
  for (int i = 1; i < argc; ++i) measure(strtoull(argv[i], NULL, 10));
  MPI_Finalize();
  return 0;
}
