// SPDX-License-Identifier: Apache-2.0
// What a rank tells the others about its call, so that all find out whether they make the same one.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace onehop {

/// The properties of a call that a host rank announces in the call's first step. This is free: they travel in the
/// cache line that carries the step (backend/host/step_barrier.h).
struct CallRecord {
  std::uint64_t count = 0;
  std::uint8_t collective = 0;  ///< a Collective
  std::uint8_t dtype = 0;
  std::uint8_t op = 0;
  std::uint8_t algorithm = 0;   ///< as requested by the caller
  std::uint8_t rejected = 0;    ///< not 0: the reason why this rank's arguments are invalid
  std::uint8_t own_factor = 0;  ///< 1: with CallOptions::own_factor
  std::uint8_t symmetric = 0;   ///< CallOptions::symmetric
  std::int8_t root = -1;        ///< -1: the call has none
  /// Number of the symmetric buffer that holds the input; kByAddress: private memory that the others can read;
  /// 0: neither.
  std::uint64_t in_buffer = 0;
  std::uint64_t in_offset = 0;  ///< or the address
  std::uint64_t out_buffer = 0;
  std::uint64_t out_offset = 0;
  /// CallOptions::factor; as bits, so that NaN equals itself
  std::uint64_t factor = std::bit_cast<std::uint64_t>(1.0);

  /// All bits as words. There is no padding between the fields.
  using Words = std::array<std::uint64_t, 7>;
  [[nodiscard]] constexpr Words words() const { return std::bit_cast<Words>(*this); }
};

/// Denotes "any algorithm" in CallRecord::algorithm.
inline constexpr std::uint8_t kAnyAlgorithm = 0xff;

/// In place of the number of a symmetric buffer: the offset is an address in the memory of the rank's process.
inline constexpr std::uint64_t kByAddress = ~std::uint64_t{0};

/// The bits in which the calls of all ranks must agree. The location of their data may differ.
inline constexpr CallRecord kAgreed{.count = ~std::uint64_t{0},
                                    .collective = 0xff,
                                    .dtype = 0xff,
                                    .op = 0xff,
                                    .algorithm = 0xff,
                                    .rejected = 0xff,
                                    .own_factor = 0xff,
                                    .symmetric = 0xff,
                                    .root = -1,
                                    .factor = ~std::uint64_t{0}};

/// Whether two ranks make the same call.
[[nodiscard]] constexpr bool is_same_call(const CallRecord& a, const CallRecord& b) {
  for (std::size_t i = 0; i < CallRecord::Words{}.size(); ++i) {
    if (((a.words()[i] ^ b.words()[i]) & kAgreed.words()[i]) != 0) return false;
  }
  return true;
}

/// For example "all_reduce(count 1024, f32, sum)". Accepts what another rank has written.
[[nodiscard]] std::string describe(const CallRecord& call);

}  // namespace onehop
