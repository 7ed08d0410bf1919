// SPDX-License-Identifier: Apache-2.0
// All-reduce, residual and RMSNorm of bf16 rows in one kernel (fused_rms_norm.cuh), as tensor-parallel
// inference needs them after every attention and every feed-forward layer. Results are checked against a
// reference in double precision, and timed beside onehop::all_reduce followed by a kernel.
//
//   onehop launch -n 2 -- ./cuda_fused_rms_norm            checks
//   onehop launch -n 2 -- ./cuda_fused_rms_norm --bench    checks and times, in graphs
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "cuda_example.h"
#include "fused_rms_norm.cuh"

namespace {

using example::check;
using example::NormParams;
using onehop::device::LamportBuffers;
using onehop::device::LLPackets;

constexpr float kEpsilon = 1e-5f;
constexpr unsigned kMostTokens = 256;
constexpr std::size_t kMostBytes = std::size_t{kMostTokens} * 8192 * 2;
constexpr std::size_t kMostPacketBytes = 256 << 10;
constexpr std::size_t kLamportBytes = kMostBytes + 64;  // two pieces of two-shot, each rounded up

struct Shape {
  unsigned tokens;
  unsigned hidden;
  [[nodiscard]] unsigned elements() const { return tokens * hidden; }
  [[nodiscard]] std::size_t bytes() const { return std::size_t{2} * elements(); }
};

enum Variant { kUnfused, kPackets, kOneShot, kTwoShot, kVariants };
constexpr const char* kNames[kVariants] = {"unfused", "packets", "one-shot", "two-shot"};

bool carries(Variant variant, const Shape& shape) {
  return variant != kPackets || shape.bytes() <= kMostPacketBytes;
}
/// With two ranks, two-shot moves the same bytes as one-shot in two trips. With more, one-shot moves more
/// bytes in one trip.
Variant fastest(const Shape& shape, int ranks) {
  if (shape.bytes() <= std::size_t{32} << 10) return kPackets;
  const std::size_t most = ranks == 2 ? kMostBytes : ranks <= 4 ? 256 << 10 : 128 << 10;
  return shape.bytes() <= most ? kOneShot : kTwoShot;
}

// --- launching ---

/// The state that one rank needs to launch any of the algorithms.
class FusedNorm {
 public:
  FusedNorm(onehop::Group& group, int device, cudaStream_t stream)
      : group_(group),
        stream_(stream),
        lamport_at_(onehop::LLChannel::bytes(group.size(), kMostPacketBytes)),
        buffer_(group.allocate(lamport_at_ + onehop::LamportChannel::bytes(group.size(), kLamportBytes))),
        packets_(onehop::LLChannel::make(buffer_.device_view(), 0, kMostPacketBytes)),
        lamport_(onehop::LamportChannel::make(buffer_.device_view(), lamport_at_, kLamportBytes)),
        sum_(example::allocate<uint4>(kMostBytes / 16)) {
    int blocks = 0;
    int major = 0;
    check(cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
          "cudaDeviceGetAttribute");
    blocks_ = static_cast<unsigned>(blocks);  // one per SM: all are resident at once
    clusters_ = major >= 9;
  }
  ~FusedNorm() { (void)cudaFree(sum_); }
  FusedNorm(const FusedNorm&) = delete;
  FusedNorm& operator=(const FusedNorm&) = delete;

  /// Decides how many blocks share a row.
  void queue(Variant variant, const Shape& shape, NormParams params) {
    params.vectors = shape.hidden / example::kElements;
    params.mean = 1.0f / static_cast<float>(shape.hidden);
    const bool wide = params.vectors > example::kMostThreads;
    if (variant == kUnfused) {
      (void)onehop::all_reduce(group_, params.x, sum_, shape.elements(), onehop::DType::bf16,
                               onehop::ReduceOp::sum, {stream_});
      params.x = sum_;
      return wide ? launch(example::add_and_normalize<2>, shape.tokens, params)
                  : launch(example::add_and_normalize<1>, shape.tokens, params);
    }
    // Without clusters, one block processes a row, with up to two vectors per thread.
    params.log_parts = clusters_ && wide ? 1 : 0;
    wide && !clusters_ ? queue_fused<2>(variant, params) : queue_fused<1>(variant, params);
  }
  [[nodiscard]] const onehop::SymmetricBuffer& buffer() const { return buffer_; }

 private:
  template <int kVectors>
  void queue_fused(Variant variant, const NormParams& params) {
    switch (group_.size()) {
      case 2:
        return queue_fused<2, kVectors>(variant, params);
      case 4:
        return queue_fused<4, kVectors>(variant, params);
      default:
        return queue_fused<onehop::kMaxDevices, kVectors>(variant, params);
    }
  }
  template <int kRanks, int kVectors>
  void queue_fused(Variant variant, NormParams params) {
    if (variant == kTwoShot) {
      const unsigned total = params.tokens * params.vectors;
      const auto ranks = static_cast<unsigned>(group_.size());
      const unsigned blocks = std::min(total / example::kMostThreads, blocks_);
      return launch(example::two_shot<kRanks, kVectors>, blocks >> params.log_parts << params.log_parts,
                    params, lamport_, params, (total + ranks - 1) / ranks);
    }
    // Spreads rows over as many SMs as possible: at most 8 blocks in a cluster, and two warps in each.
    while (clusters_ && params.log_parts < 3 && params.tokens << params.log_parts <= blocks_ / 2 &&
           params.vectors >> params.log_parts >= 128)
      ++params.log_parts;
    const unsigned blocks = std::min(params.tokens, blocks_ >> params.log_parts) << params.log_parts;
    if (variant == kPackets) {
      launch(example::one_shot<LLPackets, kRanks, kVectors>, blocks, params, packets_, params);
    } else {
      launch(example::one_shot<LamportBuffers, kRanks, kVectors>, blocks, params, lamport_, params);
    }
  }
  void launch(void (*kernel)(NormParams), unsigned blocks, const NormParams& params) {
    launch(kernel, blocks, params, params);
  }
  /// `shape`: the size of the blocks.
  template <class... Parameters, class... Arguments>
  void launch(void (*kernel)(Parameters...), unsigned blocks, const NormParams& shape,
              const Arguments&... arguments) {
    cudaLaunchAttribute attributes[2]{};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {.x = 1u << shape.log_parts, .y = 1, .z = 1};
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = std::min(shape.vectors >> shape.log_parts, example::kMostThreads);
    config.stream = stream_;
    config.attrs = attributes;
    config.numAttrs = !clusters_ ? 0 : shape.log_parts == 0 ? 1 : 2;
    check(cudaLaunchKernelEx(&config, kernel, arguments...), "launching a kernel");
  }

  onehop::Group& group_;
  cudaStream_t stream_;
  std::size_t lamport_at_;
  onehop::SymmetricBuffer buffer_;
  onehop::LLChannel packets_;
  onehop::LamportChannel lamport_;
  uint4* sum_;
  unsigned blocks_ = 0;
  bool clusters_ = false;  ///< also: programmatic dependent launch
};

// --- checking ---

constexpr int kResidual = 100;  // the rank argument that selects the residual's random data
constexpr int kWeight = 101;

/// Random signs, exponents from 2^-4 to 2^0 and fractions.
std::uint16_t random_bits(int rank, unsigned seed, unsigned i) {
  std::uint32_t z = i * 0x9e3779b9u + seed * 0x85ebca6bu + static_cast<unsigned>(rank) * 0xc2b2ae35u;
  z = (z ^ z >> 16) * 0x7feb352du;
  z = (z ^ z >> 15) * 0x846ca68bu;
  z ^= z >> 16;
  return static_cast<std::uint16_t>((z & 0x807f) | (123 + (z >> 16) % 5) << 7);
}
double value_of(std::uint16_t bits) {
  const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &word, sizeof value);
  return static_cast<double>(value);
}

/// The expected results, and their tolerances.
struct Reference {
  std::vector<double> h, h_slack, out, out_slack;

  Reference(const Shape& shape, int ranks, unsigned seed)
      : h(shape.elements()), h_slack(h.size()), out(h.size()), out_slack(h.size()) {
    constexpr double kRounding = 1.0 / 256;  // to bf16
    for (unsigned row = 0; row < shape.tokens; ++row) {
      double squares = 0;
      for (unsigned i = row * shape.hidden; i < (row + 1) * shape.hidden; ++i) {
        double magnitude = 0;
        for (int r = 0; r <= ranks; ++r) {
          const double part = value_of(random_bits(r < ranks ? r : kResidual, seed, i));
          h[i] += part;
          magnitude += std::abs(part);
        }
        squares += h[i] * h[i];
        h_slack[i] = kRounding * std::abs(h[i]) + 1e-6 * magnitude;
      }
      const double scale = 1 / std::sqrt(squares / shape.hidden + static_cast<double>(kEpsilon));
      for (unsigned i = row * shape.hidden; i < (row + 1) * shape.hidden; ++i) {
        const double factor = scale * value_of(random_bits(kWeight, 0, i % shape.hidden));
        out[i] = h[i] * factor;
        out_slack[i] = h_slack[i] * std::abs(factor) + (kRounding + 1e-3) * std::abs(out[i]);
      }
    }
  }
};

/// A kernel's inputs and outputs on one GPU.
class Data {
 public:
  Data()
      : x_(example::allocate<std::uint16_t>(kMostBytes / 2)),
        residual_(example::allocate<std::uint16_t>(kMostBytes / 2)),
        weight_(example::allocate<std::uint16_t>(8192)),
        out_(example::allocate<std::uint16_t>(kMostBytes / 2)),
        h_(example::allocate<std::uint16_t>(kMostBytes / 2)) {}
  ~Data() {
    for (std::uint16_t* each : {x_, residual_, weight_, out_, h_}) (void)cudaFree(each);
  }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;

  void fill(const Shape& shape, int rank, unsigned seed) const {
    upload(x_, rank, seed, shape.elements());
    upload(residual_, kResidual, seed, shape.elements());
    upload(weight_, kWeight, 0, shape.hidden);
    check(cudaDeviceSynchronize(), "filling");  // the kernels' stream does not wait for copies
  }
  void poison(const Shape& shape) const {
    check(cudaMemset(out_, 0xff, shape.bytes()), "cudaMemset");
    check(cudaMemset(h_, 0xff, shape.bytes()), "cudaMemset");
    check(cudaDeviceSynchronize(), "poisoning the results");
  }
  [[nodiscard]] NormParams params(const Shape& shape) const {
    NormParams params;
    params.x = reinterpret_cast<const uint4*>(x_);
    params.residual = reinterpret_cast<const uint4*>(residual_);
    params.weight = reinterpret_cast<const uint4*>(weight_);
    params.out = reinterpret_cast<uint4*>(out_);
    params.h = reinterpret_cast<uint4*>(h_);
    params.tokens = shape.tokens;
    params.epsilon = kEpsilon;
    return params;
  }
  /// The number of wrong elements in both results. The unfused sum is rounded once more. `digest` is a hash
  /// of all bits.
  [[nodiscard]] std::size_t wrong(const Shape& shape, const Reference& wanted, Variant variant,
                                  std::uint64_t& digest) const {
    const double leeway = variant == kUnfused ? 4 : 1;
    const std::vector<std::uint16_t> h = download(h_, shape.elements());
    const std::vector<std::uint16_t> out = download(out_, shape.elements());
    std::size_t count = 0;
    for (std::size_t i = 0; i < h.size(); ++i) {
      const bool good =
          std::abs(value_of(h[i]) - wanted.h[i]) <= leeway * wanted.h_slack[i] + more(variant) &&
          std::abs(value_of(out[i]) - wanted.out[i]) <= leeway * wanted.out_slack[i] + more(variant);
      count += good ? 0 : 1;
      digest = (digest ^ (h[i] | std::uint32_t{out[i]} << 16)) * 0x100000001b3;
    }
    return count;
  }

 private:
  /// Where the terms cancel each other, the sum's rounding error remains.
  static double more(Variant variant) { return variant == kUnfused ? 0.1 : 0; }
  static void upload(std::uint16_t* to, int rank, unsigned seed, std::size_t count) {
    std::vector<std::uint16_t> bits(count);
    for (unsigned i = 0; i < count; ++i) bits[i] = random_bits(rank, seed, i);
    check(cudaMemcpy(to, bits.data(), count * 2, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  static std::vector<std::uint16_t> download(const std::uint16_t* from, std::size_t count) {
    std::vector<std::uint16_t> bits(count);
    check(cudaMemcpy(bits.data(), from, count * 2, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return bits;
  }

  std::uint16_t *x_, *residual_, *weight_, *out_, *h_;
};

/// Runs all algorithms on all shapes and checks every element. Fused results have the same bits on all ranks
/// and with all algorithms. Returns whether everything is right on this rank.
bool verify(onehop::Group& group, FusedNorm& norm, const Data& data, cudaStream_t stream) {
  std::size_t wrong = 0;
  std::size_t elements = 0;
  std::size_t differ = 0;
  unsigned seed = 1;
  for (const unsigned hidden : {4096u, 8192u}) {
    for (const unsigned tokens : {1u, 3u, 16u, 100u, 256u}) {
      const Shape shape{tokens, hidden};
      data.fill(shape, group.rank().value, ++seed);
      const Reference wanted(shape, group.size(), seed);
      std::string first;
      for (int variant = kUnfused; variant < kVariants; ++variant) {
        if (!carries(static_cast<Variant>(variant), shape)) continue;
        data.poison(shape);
        norm.queue(static_cast<Variant>(variant), shape, data.params(shape));
        group.synchronize({stream});  // throws if a wait in a kernel failed, naming the rank it waited for
        std::uint64_t digest = 0xcbf29ce484222325;
        wrong += data.wrong(shape, wanted, static_cast<Variant>(variant), digest);
        elements += 2 * shape.elements();
        const std::vector<std::string> digests =
            group.all_gather({reinterpret_cast<const char*>(&digest), sizeof digest});
        if (variant != kUnfused && first.empty()) first = digests[0];
        for (const std::string& each : digests)
          differ += each == (variant == kUnfused ? digests[0] : first) ? 0 : 1;
      }
    }
  }
  std::printf("rank %d: %zu elements, %zu are wrong; results with other bits than the first: %zu\n",
              group.rank().value, elements, wrong, differ);
  return wrong == 0 && differ == 0;
}

// --- timing ---

constexpr int kCalls = 50;  // per graph
constexpr int kReplays = 21;

__global__ void pause(std::uint64_t nanoseconds) {
  const std::uint64_t start = onehop::device::now_ns();
  while (onehop::device::now_ns() - start < nanoseconds) {
  }
}

/// kCalls calls of one algorithm over the same memory, to be replayed.
class Chain {
 public:
  Chain(FusedNorm& norm, Variant variant, const Shape& shape, const NormParams& params, cudaStream_t stream)
      : norm_(norm), stream_(stream) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (int i = 0; i < kCalls; ++i) norm.queue(variant, shape, params);
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cudaError_t result = cudaGraphInstantiate(&replay_, graph, 0);
    (void)cudaGraphDestroy(graph);
    check(result, "cudaGraphInstantiate");
    check(cudaEventCreate(&begin_), "cudaEventCreate");
    check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  ~Chain() {
    if (begin_ != nullptr) (void)cudaEventDestroy(begin_);
    if (end_ != nullptr) (void)cudaEventDestroy(end_);
    (void)cudaGraphExecDestroy(replay_);
  }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  /// Microseconds per call. The pause lets the host queue everything; the barrier gives a common start.
  float time(onehop::Group& group) {
    pause<<<1, 1, 0, stream_>>>(100'000);
    norm_.buffer().barrier({stream_}, 0);
    check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    check(cudaGraphLaunch(replay_, stream_), "cudaGraphLaunch");
    check(cudaEventRecord(end_, stream_), "cudaEventRecord");
    group.synchronize({stream_});
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return milliseconds * 1000 / kCalls;
  }

 private:
  FusedNorm& norm_;
  cudaStream_t stream_;
  cudaGraphExec_t replay_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

/// Returns, for each algorithm that supports the shape, the median over replays of the slowest rank's time;
/// otherwise 0. Algorithms take turns, and the first replay of each does not count.
std::vector<float> measure(onehop::Group& group, FusedNorm& norm, const Shape& shape,
                           const NormParams& params, cudaStream_t stream) {
  std::vector<std::unique_ptr<Chain>> chains(kVariants);
  for (int variant = 0; variant < kVariants; ++variant) {
    if (carries(static_cast<Variant>(variant), shape))
      chains[variant] = std::make_unique<Chain>(norm, static_cast<Variant>(variant), shape, params, stream);
  }
  std::vector<float> own(kVariants * kReplays);
  for (int i = -1; i < kReplays; ++i) {
    for (int variant = 0; variant < kVariants; ++variant) {
      if (chains[variant] == nullptr) continue;
      const float time = chains[variant]->time(group);
      if (i >= 0) own[variant * kReplays + i] = time;
    }
  }
  std::vector<float> slowest(own.size());
  for (const std::string& each :
       group.all_gather({reinterpret_cast<const char*>(own.data()), own.size() * sizeof(float)})) {
    std::vector<float> theirs(own.size());
    std::memcpy(theirs.data(), each.data(), each.size());
    for (std::size_t i = 0; i < own.size(); ++i) slowest[i] = std::max(slowest[i], theirs[i]);
  }
  std::vector<float> medians;
  for (auto from = slowest.begin(); from != slowest.end(); from += kReplays) {
    std::nth_element(from, from + kReplays / 2, from + kReplays);
    medians.push_back(from[kReplays / 2]);
  }
  return medians;
}

void bench(onehop::Group& group, FusedNorm& norm, const Data& data, cudaStream_t stream) {
  const bool prints = group.rank().value == 0;
  pause<<<1, 1, 0, stream>>>(0);  // loads the kernel
  group.synchronize({stream});
  if (prints) {
    std::printf("%d ranks, graphs of %d calls, median of %d replays of the slowest rank, us per call\n",
                group.size(), kCalls, kReplays);
    std::printf("%6s %6s %8s %9s %9s %9s %9s %9s %7s  %s\n", "tokens", "hidden", "bytes", kNames[kUnfused],
                kNames[kPackets], kNames[kOneShot], kNames[kTwoShot], "fused", "faster", "by");
  }
  for (const unsigned hidden : {4096u, 8192u}) {
    for (unsigned tokens = 1; tokens <= kMostTokens; tokens *= 2) {
      const Shape shape{tokens, hidden};
      data.fill(shape, group.rank().value, tokens);
      const std::vector<float> times = measure(group, norm, shape, data.params(shape), stream);
      if (!prints) continue;
      const Variant variant = fastest(shape, group.size());
      std::printf("%6u %6u %8zu", tokens, hidden, shape.bytes());
      for (const float time : times) time > 0 ? std::printf(" %9.2f", time) : std::printf(" %9s", "-");
      std::printf(" %9.2f %6.2fx  %s\n", times[variant], times[kUnfused] / times[variant], kNames[variant]);
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool times = argc == 2 && std::string_view(argv[1]) == "--bench";
  if (argc > 1 && !times) {
    std::fprintf(stderr, "usage: %s [--bench]\n", argv[0]);
    return 2;
  }
  const onehop::JobInfo job = example::job();
  if (example::skipped(job.size)) return 0;
  onehop::Group group = onehop::Group::from_env({.device = onehop::DeviceId{job.rank.value}});
  check(cudaSetDevice(job.rank.value), "cudaSetDevice");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  const Data data;
  FusedNorm norm(group, job.rank.value, stream);
  const bool right = verify(group, norm, data, stream);
  if (times) bench(group, norm, data, stream);
  return right ? 0 : 1;
}
