// SPDX-License-Identifier: Apache-2.0
// The part of the peer check that needs no GPU: expected values, and the interpretation of results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onehop/peer_check.h"

#include "backend/cuda/peer_check_params.h"

namespace onehop::peer_check {

/// Throws Error{invalid_argument} naming the option, its value and the allowed values.
void check_options(const PeerCheckOptions& options);

/// The devices to check, sorted: `wanted`, or all of `count` if `wanted` is empty. Error{invalid_argument}
/// unless all exist, all differ and there are at least 2.
[[nodiscard]] std::vector<DeviceId> choose_devices(const std::vector<DeviceId>& wanted, int count);

/// Seed of the data for one test of one pair. Different for every set of arguments.
[[nodiscard]] std::uint64_t data_key(std::uint64_t seed, DeviceId from, DeviceId to, PeerTest test,
                                     unsigned phase);

/// For example "2 of 64 words of 16 bytes are wrong, the first at byte 48"; empty if none is wrong.
[[nodiscard]] std::string describe(const Verdict& verdict, std::uint64_t units);

/// Checks the counters after `devices` devices have run onehop_peer_atomics on them; the tickets they got add
/// up to `ticket_sum`. Returns what is wrong, or an empty string.
[[nodiscard]] std::string describe_atomics(const Scratch& owner, std::uint64_t ticket_sum, unsigned devices);

/// The middle value, or the mean of the two middle values. `values` must not be empty.
[[nodiscard]] double median(std::vector<double> values);

/// Whether the outcome of a pair is worth recording: it was tested, or needs no test.
[[nodiscard]] bool is_conclusive(const PairReport& report);

}  // namespace onehop::peer_check
