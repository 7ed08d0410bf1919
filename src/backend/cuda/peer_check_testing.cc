// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/peer_check_testing.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>

namespace onehop::peer_check_testing {

using namespace peer_check;

Machine* g_machine = nullptr;

namespace {

using Kernel = void (*)(int device, const void* parameter);

int current_device() {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(g_machine->current)) - 1;
}

std::uint64_t expected(std::uint64_t key, std::uint64_t word) {
  return (key ^ word) * 0x9e3779b97f4a7c15ull;
}

void run_store(int, const void* parameter) {
  const auto& p = *static_cast<const StoreParams*>(parameter);
  auto* const words = static_cast<std::uint64_t*>(p.to);
  for (std::uint64_t i = 0; i < 2 * p.units; ++i) words[i] = expected(p.key, i);
  if (g_machine->after) g_machine->after("store", current_device(), static_cast<std::byte*>(p.to));
}

void run_load(int, const void* parameter) {
  const auto& p = *static_cast<const LoadParams*>(parameter);
  std::memcpy(p.to, p.from, p.units * kUnitBytes);
  if (g_machine->after) g_machine->after("load", current_device(), static_cast<std::byte*>(p.to));
}

void run_verify(int device, const void* parameter) {
  const auto& p = *static_cast<const VerifyParams*>(parameter);
  EXPECT_EQ(g_machine->device_of(p.data), device) << "data is verified where it lies";
  EXPECT_EQ(g_machine->device_of(p.verdict), device);
  const auto* const words = static_cast<const std::uint64_t*>(p.data);
  for (std::uint64_t unit = 0; unit < p.units; ++unit) {
    if (words[2 * unit] == expected(p.key, 2 * unit) &&
        words[2 * unit + 1] == expected(p.key, 2 * unit + 1)) {
      continue;
    }
    ++p.verdict->wrong;
    p.verdict->from_end = std::max(p.verdict->from_end, p.units - unit);
  }
}

void run_atomics(int device, const void* parameter) {
  const auto& p = *static_cast<const AtomicsParams*>(parameter);
  for (unsigned thread = 0; thread < kAtomicBlocks * kAtomicBlock; ++thread) {
    for (unsigned round = 0; round < kAtomicRounds; ++round) {
      const unsigned counter = (thread + round) % kCounters;
      p.counters32[counter] += counter + 1;
      *p.ticket_sum += p.counters64[counter]++;
    }
  }
  if (g_machine->after) g_machine->after("atomics", device, reinterpret_cast<std::byte*>(p.counters64));
}

void run_ping(int, const void* parameter) {
  const auto& p = *static_cast<const PingParams*>(parameter);
  if (p.starts == 0) {
    g_machine->waiting_ping = p;
    return;
  }
  const PingParams& other = g_machine->waiting_ping;
  EXPECT_EQ(p.theirs, other.mine);
  EXPECT_EQ(p.mine, other.theirs);
  EXPECT_NE(p.result, other.result);
  EXPECT_GT(p.limit_ns, 0u);
  for (const PingParams* side : {&p, &other}) {
    side->result->gave_up = g_machine->flags_arrive ? 0 : 1;
    side->result->rounds_done = g_machine->flags_arrive ? p.warmup + p.rounds : 5;
    side->result->elapsed_ns = 2000ull * p.rounds;
  }
}

struct NamedKernel {
  const char* name;
  Kernel run;
};
NamedKernel g_kernels[] = {{"onehop_peer_store", run_store},
                           {"onehop_peer_load", run_load},
                           {"onehop_peer_verify", run_verify},
                           {"onehop_peer_atomics", run_atomics},
                           {"onehop_peer_ping", run_ping}};

CUresult allocate(CUdeviceptr* address, std::size_t bytes) {
  if (bytes > g_machine->largest_allocation) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const block = ::aligned_alloc(128, (bytes + 127) / 128 * 128);
  std::memset(block, 0x11, bytes);
  *address = reinterpret_cast<CUdeviceptr>(block);
  g_machine->memory[*address] = {current_device(), bytes};
  return CUDA_SUCCESS;
}

void add_devices(CudaDriver& fake) {
  fake.DriverGetVersion = [](int* version) {
    *version = 13000;
    return CUDA_SUCCESS;
  };
  fake.DeviceGetCount = [](int* count) {
    *count = kDevices;
    return CUDA_SUCCESS;
  };
  fake.DeviceGet = [](CUdevice* device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
  };
  fake.DeviceGetUuid = [](CUuuid* uuid, CUdevice device) {
    std::memset(uuid->bytes, device, sizeof uuid->bytes);
    return CUDA_SUCCESS;
  };
  fake.DeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
    EXPECT_EQ(attribute, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    *value = 132;
    return CUDA_SUCCESS;
  };
  fake.DevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) {
    *context = reinterpret_cast<CUcontext>(static_cast<std::intptr_t>(device) + 1);
    return CUDA_SUCCESS;
  };
  fake.CtxGetCurrent = [](CUcontext* context) {
    *context = g_machine->current;
    return CUDA_SUCCESS;
  };
  fake.CtxSetCurrent = [](CUcontext context) {
    g_machine->current = context;
    return CUDA_SUCCESS;
  };
  fake.DeviceCanAccessPeer = [](int* answer, CUdevice device, CUdevice peer) {
    *answer = g_machine->no_access.count({device, peer}) == 0 ? 1 : 0;
    return CUDA_SUCCESS;
  };
  fake.CtxEnablePeerAccess = [](CUcontext, unsigned) { return CUDA_SUCCESS; };
  fake.DeviceGetP2PAttribute = [](int* value, CUdevice_P2PAttribute attribute, CUdevice, CUdevice) {
    const bool atomics = attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    *value = atomics && !g_machine->native_atomics ? 0 : 1;
    return CUDA_SUCCESS;
  };
}

void add_memory(CudaDriver& fake) {
  fake.MemAlloc = allocate;
  fake.MemFree = [](CUdeviceptr address) {
    EXPECT_FALSE(g_machine->hanging) << "freeing waits for ever";
    EXPECT_EQ(g_machine->memory.erase(address), 1u);
    ::free(reinterpret_cast<void*>(address));
    return CUDA_SUCCESS;
  };
  fake.MemHostAlloc = [](void** address, std::size_t bytes, unsigned flags) {
    EXPECT_EQ(flags, static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE));
    *address = ::aligned_alloc(128, (bytes + 127) / 128 * 128);
    g_machine->pinned.insert(*address);
    return CUDA_SUCCESS;
  };
  fake.MemFreeHost = [](void* address) {
    EXPECT_EQ(g_machine->pinned.erase(address), 1u);
    ::free(address);
    return CUDA_SUCCESS;
  };
  fake.MemsetD8Async = [](CUdeviceptr address, unsigned char value, std::size_t bytes, CUstream) {
    EXPECT_EQ(g_machine->device_of(reinterpret_cast<void*>(address)), current_device());
    std::memset(reinterpret_cast<void*>(address), value, bytes);
    return g_machine->sticky;
  };
  fake.MemcpyDtoHAsync = [](void* to, CUdeviceptr from, std::size_t bytes, CUstream) {
    std::memcpy(to, reinterpret_cast<void*>(from), bytes);
    return g_machine->sticky;
  };
  fake.MemcpyPeerAsync = [](CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, std::size_t bytes,
                            CUstream) {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
    if (g_machine->after) g_machine->after("copy", current_device(), reinterpret_cast<std::byte*>(to));
    return g_machine->sticky;
  };
}

void add_streams(CudaDriver& fake) {
  fake.StreamCreate = [](CUstream* stream, unsigned flags) {
    EXPECT_EQ(flags, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
    *stream = reinterpret_cast<CUstream>(g_machine->current);
    ++g_machine->streams;
    return CUDA_SUCCESS;
  };
  fake.StreamDestroy = [](CUstream) {
    --g_machine->streams;
    return CUDA_SUCCESS;
  };
  fake.StreamQuery = [](CUstream stream) {
    const bool hangs = g_machine->hanging && reinterpret_cast<std::intptr_t>(stream) == 2;
    return hangs ? CUDA_ERROR_NOT_READY : g_machine->sticky;
  };
  fake.EventCreate = [](CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(static_cast<std::intptr_t>(++g_machine->events));
    return CUDA_SUCCESS;
  };
  fake.EventDestroy = [](CUevent) {
    --g_machine->events;
    return CUDA_SUCCESS;
  };
  fake.EventRecord = [](CUevent, CUstream stream) {
    EXPECT_EQ(reinterpret_cast<void*>(stream), reinterpret_cast<void*>(g_machine->current));
    return CUDA_SUCCESS;
  };
  fake.EventElapsedTime = [](float* milliseconds, CUevent first, CUevent second) {
    EXPECT_EQ(reinterpret_cast<std::intptr_t>(second) - reinterpret_cast<std::intptr_t>(first), 1);
    *milliseconds = 0.5F;
    return CUDA_SUCCESS;
  };
}

void add_kernels(CudaDriver& fake) {
  fake.LibraryLoadData = [](CUlibrary* library, const void*, CUjit_option*, void**, unsigned,
                            CUlibraryOption*, void**, unsigned) {
    *library = reinterpret_cast<CUlibrary>(std::intptr_t{1});
    return CUDA_SUCCESS;
  };
  fake.LibraryGetKernel = [](CUkernel* kernel, CUlibrary, const char* name) {
    for (NamedKernel& known : g_kernels) {
      if (std::strcmp(known.name, name) == 0) {
        *kernel = reinterpret_cast<CUkernel>(&known);
        return CUDA_SUCCESS;
      }
    }
    return CUDA_ERROR_NOT_FOUND;
  };
  fake.KernelGetFunction = [](CUfunction* function, CUkernel kernel) {
    *function = reinterpret_cast<CUfunction>(kernel);
    return CUDA_SUCCESS;
  };
  fake.LaunchKernelEx = [](const CUlaunchConfig* config, CUfunction function, void** parameters, void**) {
    const auto& kernel = *reinterpret_cast<const NamedKernel*>(function);
    const int device = current_device();
    EXPECT_EQ(reinterpret_cast<void*>(config->hStream), reinterpret_cast<void*>(g_machine->current));
    ++g_machine->kernels_run;
    if (device == 1 && g_machine->hangs_in == kernel.name) {
      g_machine->hanging = true;
      return CUDA_SUCCESS;
    }
    if (device == 1 && g_machine->faults_in == kernel.name) g_machine->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
    kernel.run(device, parameters[0]);
    return CUDA_SUCCESS;
  };
}

}  // namespace

void drive_machine(CudaDriver& fake) {
  add_devices(fake);
  add_memory(fake);
  add_streams(fake);
  add_kernels(fake);
}

}  // namespace onehop::peer_check_testing
