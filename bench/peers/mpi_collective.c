/* SPDX-License-Identifier: Apache-2.0 */
/* MPI's collectives measured the way `onehop bench` measures ours, so that the two can be compared line by
 * line: ranks start a sample together, a sample is a batch of calls of at least 50 us, its time is the
 * slowest rank's, and the figure is the median over samples. f32, sum, root 0, out of place, every element
 * checked before timing counts. Bytes are counted as `onehop bench` does: of all blocks of the larger side.
 *
 * usage: mpirun -n N mpi_collective COLLECTIVE BYTES...
 * prints one "bytes microseconds min p95 samples batch" line per size. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMaxBatch = 100000, kMinSamples = 5, kMaxSamples = 1000, kRoot = 0 };
static const double kSampleUs = 50, kBudgetUs = 200000;

static float* in_data;
static float* out_data;
static int count; /* elements of a block */
static int rank_number, rank_count;

static void all_reduce(void) {
  MPI_Allreduce(in_data, out_data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void all_gather(void) {
  MPI_Allgather(in_data, count, MPI_FLOAT, out_data, count, MPI_FLOAT, MPI_COMM_WORLD);
}
static void reduce_scatter(void) {
  MPI_Reduce_scatter_block(in_data, out_data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void broadcast(void) { /* has one buffer: the root's input is its output */
  MPI_Bcast(rank_number == kRoot ? in_data : out_data, count, MPI_FLOAT, kRoot, MPI_COMM_WORLD);
}
static void reduce(void) {
  MPI_Reduce(in_data, out_data, count, MPI_FLOAT, MPI_SUM, kRoot, MPI_COMM_WORLD);
}
static void all_to_all(void) {
  MPI_Alltoall(in_data, count, MPI_FLOAT, out_data, count, MPI_FLOAT, MPI_COMM_WORLD);
}
static void gather(void) {
  MPI_Gather(in_data, count, MPI_FLOAT, out_data, count, MPI_FLOAT, kRoot, MPI_COMM_WORLD);
}
static void scatter(void) {
  MPI_Scatter(in_data, count, MPI_FLOAT, out_data, count, MPI_FLOAT, kRoot, MPI_COMM_WORLD);
}

static const struct Collective {
  const char* name;
  void (*call)(void);
  int in_block_per_rank, out_block_per_rank; /* else one block */
  int from_root, to_root;                    /* only the root gives, only the root gets */
  int reduces;
} kCollectives[] = {
    {"all-reduce", all_reduce, 0, 0, 0, 0, 1},
    {"all-gather", all_gather, 0, 1, 0, 0, 0},
    {"reduce-scatter", reduce_scatter, 1, 0, 0, 0, 1},
    {"broadcast", broadcast, 0, 0, 1, 0, 0},
    {"reduce", reduce, 0, 0, 0, 1, 1},
    {"all-to-all", all_to_all, 1, 1, 0, 0, 0},
    {"gather", gather, 0, 1, 0, 1, 0},
    {"scatter", scatter, 1, 0, 1, 0, 0},
};
static const struct Collective* collective;

static double time_batch(int batch) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < batch; ++i) collective->call();
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

static float input(int rank, int index) {
  return (float)((index * 7L + rank * 13L) % 1000);
}

/* Element `index` of block `block` of this rank's output. */
static float expected(int block, int index) {
  if (collective->in_block_per_rank) index += rank_number * count;
  if (!collective->reduces) return input(collective->from_root ? kRoot : block, index);
  float sum = 0;
  for (int r = 0; r < rank_count; ++r) sum += input(r, index);
  return sum;
}

static void check(int in_blocks, int out_blocks) {
  for (int i = 0; i < in_blocks * count; ++i) in_data[i] = input(rank_number, i);
  memset(out_data, 0xff, (size_t)(out_blocks * count) * sizeof(float));
  time_batch(1);
  if (collective->to_root && rank_number != kRoot) return;
  if (collective->call == broadcast && rank_number == kRoot) return; /* has its own input */
  for (int i = 0; i < out_blocks * count; ++i) {
    const float right = expected(i / count, i % count);
    if (out_data[i] == right) continue;
    fprintf(stderr, "%s: rank %d: element %d is %g instead of %g\n", collective->name, rank_number, i,
            out_data[i], right);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

static void measure(size_t size) {
  const int in_blocks = collective->in_block_per_rank ? rank_count : 1;
  const int out_blocks = collective->out_block_per_rank ? rank_count : 1;
  const int blocks = in_blocks > out_blocks ? in_blocks : out_blocks;
  count = (int)(size / sizeof(float) / (size_t)blocks);
  const size_t bytes = (size_t)count * (size_t)blocks * sizeof(float);
  in_data = malloc(bytes + 1);
  out_data = malloc(bytes + 1);
  if (in_data == NULL || out_data == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  check(in_blocks, out_blocks);

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
  for (size_t i = 0; i < sizeof kCollectives / sizeof *kCollectives; ++i) {
    if (argc > 1 && strcmp(argv[1], kCollectives[i].name) == 0) collective = &kCollectives[i];
  }
  if (collective == NULL) {
    fprintf(stderr, "usage: mpi_collective all-reduce|all-gather|... BYTES...\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  for (int i = 2; i < argc; ++i) measure(strtoull(argv[i], NULL, 10));
  MPI_Finalize();
  return 0;
}
