// SPDX-License-Identifier: Apache-2.0
// Your own store: any key-value store with these five operations can bring ranks together, such as the one
// that a framework already has. Here it is a std::map. Joining leaves no keys in it.
#include <onehop/onehop.h>

#include <array>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace {

struct Map {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string, std::less<>> values;

  auto locked(auto body) {
    const std::lock_guard lock(mutex);
    changed.notify_all();  // wakes waiting ranks, which look again once the lock is free
    return body();
  }
};

std::shared_ptr<onehop::Store> make_store(Map& map) {
  using Text = std::string_view;
  using onehop::Duration;  // the type of timeouts; here only get_for has to wait
  onehop::StoreCallbacks callbacks;
  callbacks.set = [&map](Text key, Text value, Duration) {
    map.locked([&] { return map.values[std::string(key)] = value; });
  };
  callbacks.get_for = [&map](Text key, Duration timeout) -> std::optional<std::string> {
    std::unique_lock lock(map.mutex);
    const auto here = [&] { return map.values.contains(key); };
    if (!map.changed.wait_for(lock, timeout, here)) return std::nullopt;
    return map.values.find(key)->second;
  };
  callbacks.add = [&map](Text key, std::int64_t delta, Duration) {
    return map.locked([&] {
      std::string& value = map.values[std::string(key)];  // decimal; a missing key counts as 0
      const std::int64_t sum = (value.empty() ? 0 : std::stoll(value)) + delta;
      value = std::to_string(sum);
      return sum;
    });
  };
  callbacks.compare_set = [&map](Text key, Text expected, Text desired, Duration) {
    return map.locked([&] {
      const auto at = map.values.find(key);
      if (at == map.values.end() && !expected.empty()) return std::string(expected);
      if (at != map.values.end() && at->second != expected) return at->second;
      return map.values[std::string(key)] = desired;
    });
  };
  callbacks.delete_key = [&map](Text key, Duration) {
    return map.locked([&] { return map.values.erase(std::string(key)) > 0; });
  };
  callbacks.description = "a std::map";
  return onehop::callback_store(std::move(callbacks));
}

}  // namespace

int main() {
  Map map;
  std::array<int, 3> sums{};
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank] {
        onehop::Group group = onehop::Group::join(make_store(map), {.rank = onehop::Rank{rank}, .size = 3});
        onehop::all_reduce(group, std::span(&(sums[static_cast<std::size_t>(rank)] = rank + 1), 1));
      });
    }
  }
  std::printf("3 ranks joined through a std::map, summed to %d each and left %zu keys in it\n", sums[0],
              map.values.size());
  return sums == std::array{6, 6, 6} && map.values.empty() ? 0 : 1;
}
