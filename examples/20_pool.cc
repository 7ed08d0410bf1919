// SPDX-License-Identifier: Apache-2.0
// Tensors in symmetric memory: one buffer is reserved, and tensors are allocated and freed in it without any
// communication. All ranks make the same calls, so that a tensor has the same offset on each. Collectives and
// peers access it without copies.
//
//   onehop launch -n 4 -- ./pool
#include <onehop/onehop.h>

#include <algorithm>
#include <cstdio>
#include <span>

namespace {

/// A minimal tensor, as a framework would define it.
class Tensor {
 public:
  Tensor(onehop::SymmetricPool& pool, std::size_t count)
      : pool_(pool), data_(reinterpret_cast<float*>(pool.allocate(count * sizeof(float))), count) {}
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() { pool_.free(data_.data()); }

  [[nodiscard]] std::span<float> values() const { return data_; }
  /// Rank r's copy of this tensor.
  [[nodiscard]] std::span<const float> of(onehop::Rank r) const {
    return pool_.buffer().sub(pool_.offset_of(data_.data()), data_.size_bytes()).peer_as<float>(r);
  }

 private:
  onehop::SymmetricPool& pool_;
  std::span<float> data_;
};

}  // namespace

int main() {
  onehop::Group group = onehop::Group::from_env();
  onehop::SymmetricPool pool(group.allocate(64 << 20));  // the only call that communicates

  bool right = true;
  for (std::size_t layer = 1; layer <= 20; ++layer) {
    const Tensor scratch(pool, 100'000 * layer);
    const Tensor activations(pool, 10'000 * layer);
    std::ranges::fill(activations.values(), static_cast<float>(group.rank().value + 1));
    onehop::all_reduce(group, activations.values());

    group.barrier();  // all ranks have their sums
    const int sum = group.size() * (group.size() + 1) / 2;
    for (onehop::Rank r{0}; r.value < group.size(); ++r.value)
      right = right && activations.of(r).back() == static_cast<float>(sum);
    group.barrier();  // all ranks have read: the memory may be freed
  }
  std::printf("rank %d: %s, and %zu of %zu bytes are free again\n", group.rank().value,
              right ? "all ranks' sums are right" : "WRONG SUMS", pool.free_bytes(), pool.buffer().bytes());
  return right && pool.free_bytes() == pool.buffer().bytes() ? 0 : 1;
}
