// SPDX-License-Identifier: Apache-2.0
// Speed of the host reductions and copies: reduce/<type>/<op>/n/bytes with the instruction set in use (the
// best, or what ONEHOP_HOST_ISA names). "bytes_per_second" counts what is read and written: (n + 1) buffers.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "onehop/types.h"

#include "backend/host/copy.h"
#include "backend/host/reduce.h"

namespace onehop::host {
namespace {

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<void, Free>;

Buffer buffer(std::size_t bytes) {
  Buffer b(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  std::memset(b.get(), 0x11, bytes);  // a small positive number in every type
  return b;
}

void reduce(benchmark::State& state, DType type, ReduceOp op, int n, std::size_t bytes) {
  std::vector<Buffer> sources;
  std::vector<const void*> src;
  for (int k = 0; k < n; ++k) src.push_back(sources.emplace_back(buffer(bytes)).get());
  const Buffer dst = buffer(bytes);
  const std::size_t count = bytes / size_of(type);
  const ReduceFn fn = reduce_function(type, op);
  const Scale scale = scale_of(type, op, 1, n);
  for (auto _ : state) {
    fn(dst.get(), src.data(), n, count, scale);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes) * (n + 1));
}

void copy_bytes(benchmark::State& state, decltype(&copy_streaming) fn, std::size_t bytes) {
  const Buffer src = buffer(bytes);
  const Buffer dst = buffer(bytes);
  for (auto _ : state) {
    fn(dst.get(), src.get(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes) * 2);
}

void register_all() {
  constexpr std::size_t kSizes[] = {1 << 10, 16 << 10, 256 << 10, 4 << 20};
  const auto add = [](DType type, ReduceOp op, int n, std::size_t bytes) {
    const std::string name = "reduce/" + std::string(to_string(type)) + "/" + std::string(to_string(op)) +
                             "/" + std::to_string(n) + "/" + std::to_string(bytes);
    benchmark::RegisterBenchmark(name.c_str(), reduce, type, op, n, bytes);
  };
  for (const std::size_t bytes : kSizes) {
    for (int type = 0; type < kDTypeCount; ++type) {
      for (const int n : {2, 4, 8}) add(static_cast<DType>(type), ReduceOp::sum, n, bytes);
      for (const ReduceOp op : {ReduceOp::max, ReduceOp::avg}) add(static_cast<DType>(type), op, 4, bytes);
    }
  }
  constexpr std::size_t kLarge = 64 << 20;
  add(DType::f32, ReduceOp::sum, 2, kLarge);
  for (const std::size_t bytes : {kSizes[0], kSizes[2], kSizes[3], kLarge}) {
    benchmark::RegisterBenchmark(("copy/" + std::to_string(bytes)).c_str(), copy_bytes, copy, bytes);
    benchmark::RegisterBenchmark(("copy_streaming/" + std::to_string(bytes)).c_str(), copy_bytes,
                                 copy_streaming, bytes);
  }
}

}  // namespace
}  // namespace onehop::host

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("onehop_host_isa", std::string(onehop::host::isa_name()));
  onehop::host::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
