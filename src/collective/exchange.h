// SPDX-License-Identifier: Apache-2.0
// Collectives that move blocks as they are, all of one size: which block goes where says all there is to say.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>

#include "collective/alone.h"
#include "collective/arguments.h"
#include "collective/device_call.h"
#include "collective/host_call.h"
#include "collective/plan.h"

namespace onehop {

/// From a block of the sender's input to a block of the receiver's output.
struct Route {
  int from = 0;
  int to = 0;
};

/// Whether a rank has one block, which goes to all that it sends to, or another one for each.
enum class Fan { same, own };

/// By host ranks: `block` bytes by this route each.
template <class FindRoute>
host::Exchange describe_exchange(const Arguments& arguments, int me, int ranks, Fan fan, FindRoute&& route) {
  const std::size_t block = arguments.block_bytes();
  const auto place = [&](int number) { return static_cast<std::size_t>(number) * block; };
  host::Exchange exchange;
  exchange.in = arguments.in;
  exchange.out = arguments.out;
  for (int i = 1; i < ranks; ++i) {
    const std::optional<Route> sent = route(me, (me + i) % ranks);
    if (!sent) continue;
    exchange.send(place(sent->from), block);
    if (fan == Fan::same) break;
  }
  exchange.longest = fan == Fan::same ? block : place(ranks - 1);
  for (int r = 0; r < ranks; ++r) {
    host::Exchange::Arrival& arrival = exchange.arrival(r);
    arrival = {};
    const std::optional<Route> received = route(r, me);
    if (!received) continue;
    arrival = {.from = place(received->from),
               .at = fan == Fan::same ? 0 : place(host::place_in_stream(me, r, ranks)),
               .bytes = block,
               .to = place(received->to)};
  }
  return exchange;
}

/// By ranks on GPUs.
template <class FindRoute>
DeviceExchange describe_device_exchange(const Arguments& arguments, int me, int ranks, FindRoute&& route) {
  const std::size_t block = arguments.block_bytes();
  DeviceExchange exchange{.phase = device_phase(arguments.kind)};
  for (int r = 0; r < ranks; ++r) {
    DeviceExchange::Transfer& transfer = exchange.transfers[static_cast<std::size_t>(r)];
    if (const std::optional<Route> sent = route(me, r)) {
      transfer.in = arguments.in + static_cast<std::size_t>(sent->from) * block;
      transfer.sent = block;
    }
    if (const std::optional<Route> received = route(r, me)) {
      transfer.out = arguments.out + static_cast<std::size_t>(received->to) * block;
      transfer.received = block;
    }
  }
  return exchange;
}

/// Lets copy engines carry it, where all ranks have promised that they can and that pays.
template <class FindRoute>
void place_in_symmetric_output(DeviceExchange& exchange, Group::State& state, const Arguments& arguments,
                               FindRoute&& route) {
  const int ranks = state.size();
  const std::size_t block = arguments.block_bytes();
  if (!arguments.options.symmetric || !is_quicker_by_copies(ranks, block)) return;
  int blocks = 0;
  for (int i = 0; i < ranks * ranks; ++i) {
    if (const std::optional<Route> each = route(i / ranks, i % ranks))
      blocks = std::max(blocks, each->to + 1);
  }
  const SymmetricOutput output =
      find_symmetric_output(state, arguments, static_cast<std::size_t>(blocks) * block);
  exchange.place = output.place;
  for (int r = 0; r < ranks; ++r) {
    if (const std::optional<Route> sent = route(state.rank().value, r)) {
      exchange.transfers[static_cast<std::size_t>(r)].there =
          output.on(r) + static_cast<std::size_t>(sent->to) * block;
    }
  }
}

/// Makes a call that moves a block from rank s to rank r wherever route(s, r) names one; which is the same on
/// all ranks.
template <class FindRoute>
Algorithm make_exchange(Group::State& state, const Arguments& arguments, Stream stream, Fan fan,
                        FindRoute&& route) {
  const int me = state.rank().value;
  const int ranks = state.size();
  const CallDefect defect = find_defect(arguments, ranks);
  if (ranks == 1) return make_alone(state, arguments, defect, stream);
  if (state.device() != nullptr) {
    return make_device_call(state, arguments, defect, [&] {
      DeviceExchange exchange = describe_device_exchange(arguments, me, ranks, route);
      place_in_symmetric_output(exchange, state, arguments, route);
      state.device()->exchange(exchange, stream);
      return Algorithm::one_shot;
    });
  }
  return make_host_call(state, arguments, defect, [&](HostCall& call) {
    host::Exchange exchange = describe_exchange(arguments, me, ranks, fan, route);
    pass_blocks(call, exchange);
    return Algorithm::one_shot;
  });
}

}  // namespace onehop
