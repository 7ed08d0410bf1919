// What stands in for the CUDA backend in a build without a CUDA toolkit: the same functions, each of which
// says so.
#include "base/check.h"
#include "kernel/device_team.h"
#include "memory/backend.h"

namespace onehop {
namespace {

[[noreturn]] void fail_without_cuda(const char* what) {
  fail(ErrorCode::unsupported,
       "{}: this onehop was built without CUDA; build it where a CUDA toolkit is installed", what);
}

}  // namespace

std::unique_ptr<MemoryBackend> make_cuda_backend(DeviceId, Duration) {
  fail_without_cuda("memory of a GPU");
}

std::string identify_device(DeviceId) {
  fail_without_cuda("a rank on a GPU");
}

std::unique_ptr<DeviceTeam> DeviceTeam::create(Options) {
  fail_without_cuda("a group of GPUs");
}

std::size_t DeviceTeam::segment_bytes(int, std::size_t) {
  fail_without_cuda("a group of GPUs");
}

}  // namespace onehop
