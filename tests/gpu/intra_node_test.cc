// SPDX-License-Identifier: Apache-2.0
// IntraNodeComm on GPUs: the real decision, sums with both algorithms, and memory that is not on the GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "onehop/intra_node_comm.h"

#include "gpu/on_gpus.h"
#include "support/errors.h"

namespace onehop::testing::gpu_intra_node_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CudaIntraNode : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = gpus_unavailable(2);
    if (!missing.empty()) GTEST_SKIP() << missing;
    ::setenv("ENABLE_INTRA_NODE_COMM", "1", 1);
  }
  void TearDown() override {
    ::unsetenv("ENABLE_INTRA_NODE_COMM");
    ::unsetenv("TEST_INTRA_NODE_COMM");
  }

  static IntraNodeComm make(const std::shared_ptr<Store>& store, Rank rank) {
    IntraNodeOptions options;
    options.device = gpu_of(rank);
    options.timeout = std::chrono::seconds{20};
    options.allow_overlapping_devices = shared_gpus() > 0;
    return IntraNodeComm(store, rank, 2, IntraNodeComm::kDefaultBufferBytes, options);
  }
  /// Two ranks with a communicator, whatever the links between the GPUs.
  static void run(const std::function<void(IntraNodeComm&, Gpu&)>& body) {
    ::setenv("TEST_INTRA_NODE_COMM", "1", 1);
    const std::shared_ptr<Store> store = memory_store();
    run_threads(2, [&](Rank rank) {
      IntraNodeComm comm = make(store, rank);
      ASSERT_TRUE(comm.rendezvous()) << comm.reason();
      Gpu gpu(comm.device());
      body(comm, gpu);
    });
  }
};

TEST_F(CudaIntraNode, IsThereExactlyWhereTheTopologySaysFullyConnected) {
  if (shared_gpus() > 0) GTEST_SKIP() << "ranks share GPUs";
  const bool connected =
      Topology::probe().connectivity({DeviceId{0}, DeviceId{1}}) == Connectivity::fully_connected;
  const std::shared_ptr<Store> store = memory_store();
  run_threads(2, [&](Rank rank) {
    IntraNodeComm comm = make(store, rank);
    EXPECT_EQ(comm.rendezvous(), connected) << comm.reason();
    EXPECT_EQ(comm.reason().empty(), connected);
    EXPECT_EQ(comm.reason().find("NVLink") != std::string::npos, !connected);
  });
}

TEST_F(CudaIntraNode, AllReducesInPlaceWithBothAlgorithms) {
  run([](IntraNodeComm& comm, Gpu& gpu) {
    EXPECT_TRUE(comm.rendezvous());
    constexpr std::size_t kMost = 3 << 20;
    auto* const data = gpu.make<std::uint32_t>(kMost);
    for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{65536}, kMost}) {
        const float own = 1.0F + static_cast<float>(comm.rank().value);
        std::uint32_t word = 0;
        std::memcpy(&word, &own, sizeof word);
        gpu.fill(data, word, count);
        comm.all_reduce(data, count, DType::f32, algorithm, gpu.stream());
        comm.synchronize(gpu.stream());
        const float sum = 3;
        std::memcpy(&word, &sum, sizeof word);
        for (const std::uint32_t each : gpu.read(data, count)) ASSERT_EQ(each, word);
      }
    }
    EXPECT_THAT(comm.usage(), ElementsAre(0, 3, 3));
    EXPECT_EQ(comm.select_all_reduce_algorithm(data, 65536, DType::f32), Algorithm::one_shot);
    EXPECT_EQ(comm.select_all_reduce_algorithm(data, 65537, DType::f32), Algorithm::two_shot);
    EXPECT_EQ(comm.select_all_reduce_algorithm(data, 2621440, DType::f32), Algorithm::two_shot);
    EXPECT_EQ(comm.select_all_reduce_algorithm(data, 2621441, DType::f32), Algorithm::none);
    const std::byte* const odd = reinterpret_cast<const std::byte*>(data) + 2;
    EXPECT_EQ(comm.select_all_reduce_algorithm(odd, 16, DType::bf16), Algorithm::none);
  });
}

TEST_F(CudaIntraNode, MemoryThatIsNotItsGpusIsRefusedOnAllRanksAndTheContextLives) {
  run([](IntraNodeComm& comm, Gpu& gpu) {
    std::vector<float> on_host(1000, 1);
    auto* const data = gpu.make<std::uint32_t>(1000);
    const auto refused = [&](void* wrong) {
      return message_of([&] { comm.all_reduce(wrong, 1000, DType::f32, Algorithm::one_shot, gpu.stream()); },
                        ErrorCode::invalid_argument);
    };
    EXPECT_THAT(refused(on_host.data()),
                AllOf(HasSubstr("host memory"), HasSubstr("GPU " + std::to_string(comm.device().value))));
    if (shared_gpus() == 0) {
      const DeviceId other{1 - comm.device().value};
      const DeviceMemory theirs = DeviceMemory::create(other, 1 << 20);
      EXPECT_THAT(refused(theirs.data()), HasSubstr("GPU " + std::to_string(other.value)));
      // No rank queued the call, so the group stays usable. No rank frees its memory while another's calls
      // are checked.
      comm.group().barrier();
    }
    gpu.fill(data, 0, 1000);
    comm.all_reduce(data, 1000, DType::f32, Algorithm::one_shot, gpu.stream());
    comm.synchronize(gpu.stream());
    EXPECT_THAT(comm.usage(), ElementsAre(0, 1, 0));
  });
}

}  // namespace
}  // namespace onehop::testing::gpu_intra_node_test
