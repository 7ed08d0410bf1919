// SPDX-License-Identifier: Apache-2.0
// The part of the peer check that needs no GPU: what is expected, and what a result means.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onehop/peer_check.h"

#include "kernel/cuda/peer_check_params.h"

namespace onehop::peer_check {

/// Throws Error{invalid_argument} that names the option, its value and what it may be.
void check_options(const PeerCheckOptions& options);

/// The devices to check: `wanted`, or all of `count` when that is empty; sorted. Error{invalid_argument}
/// unless they exist, are different and at least 2.
[[nodiscard]] std::vector<DeviceId> choose_devices(const std::vector<DeviceId>& wanted, int count);

/// What the data of one test of one pair is made from; another for every set of arguments.
[[nodiscard]] std::uint64_t data_key(std::uint64_t seed, DeviceId from, DeviceId to, PeerTest test,
                                     unsigned phase);

/// "2 of 64 words of 16 bytes are wrong, the first at byte 48"; empty when none is.
[[nodiscard]] std::string describe(const Verdict& verdict, std::uint64_t units);

/// What is wrong with the counters after `adders` devices ran onehop_peer_atomics on them and got tickets of
/// that sum together; empty when nothing is.
[[nodiscard]] std::string describe_atomics(const Scratch& owner, std::uint64_t ticket_sum, unsigned adders);

/// Of an odd number the middle, else the mean of the middle two. Not of nothing.
[[nodiscard]] double median(std::vector<double> values);

/// Whether the outcome of a pair is worth remembering: it was tried, or needs no trying.
[[nodiscard]] bool is_conclusive(const PairReport& report);

}  // namespace onehop::peer_check
