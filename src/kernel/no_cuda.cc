// What stands in for the CUDA backend in a build without a CUDA toolkit: the same functions, each of which
// says so.
#include "base/check.h"
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

}  // namespace onehop
