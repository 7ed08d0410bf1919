// SPDX-License-Identifier: Apache-2.0
// Used by c_api_misuse_test.cc: generates invalid arguments by type. Pointers refer to memory that is long
// enough for every size that the library accepts, since no library can detect a false size.
#pragma once

#include <array>
#include <climits>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "onehop/c_api.h"

namespace onehop::misuse {

inline void dispose(onehop_store_t* handle) {
  onehop_store_destroy(handle);
}
inline void dispose(onehop_tcp_server_t* handle) {
  onehop_tcp_server_destroy(handle);
}
inline void dispose(onehop_store_exchange_t* handle) {
  onehop_store_exchange_destroy(handle);
}
inline void dispose(onehop_payloads_t* handle) {
  onehop_payloads_destroy(handle);
}
inline void dispose(onehop_group_t* handle) {
  onehop_group_destroy(handle);
}
inline void dispose(onehop_buffer_t* handle) {
  onehop_buffer_destroy(handle);
}
inline void dispose(onehop_pool_t* handle) {
  onehop_pool_destroy(handle);
}
inline void dispose(onehop_ipc_channel_t* handle) {
  onehop_ipc_channel_destroy(handle);
}
inline void dispose(onehop_intra_node_comm_t* handle) {
  onehop_intra_node_comm_destroy(handle);
}
inline void dispose(onehop_topology_t* handle) {
  onehop_topology_destroy(handle);
}
inline void dispose(onehop_tuning_t* handle) {
  onehop_tuning_destroy(handle);
}
inline void dispose(char* text) {
  onehop_free(text);
}
inline void dispose(void* /*data*/) {}

/// A live handle of each kind, for a group of one host rank. Destroys the group last, since the others need
/// it.
struct World {
  World();
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  onehop_store_t* store = nullptr;
  onehop_tcp_server_t* server = nullptr;
  onehop_store_exchange_t* exchange = nullptr;
  onehop_payloads_t* payloads = nullptr;
  onehop_group_t* group = nullptr;
  onehop_buffer_t* buffer = nullptr;
  onehop_pool_t* pool = nullptr;
  onehop_ipc_channel_t* channel = nullptr;
  onehop_intra_node_comm_t* comm = nullptr;
  onehop_topology_t* topology = nullptr;
  onehop_tuning_t* tuning = nullptr;
};

/// The arguments of one call. Destroys what the call returned.
class Arguments {
 public:
  Arguments(World& world, std::mt19937& random) : world_(world), random_(random) {}
  ~Arguments() {
    for (const std::function<void()>& each : after_) each();
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  template <class T>
  T make() {
    if constexpr (std::is_same_v<T, int>) {
      return one_of<int>({0, 0, 1, 1, 2, 3, 99, -1, -2, INT_MAX, INT_MIN});
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      return one_of<std::int64_t>(
          {0, 1, -2, INT64_MIN});  // not the default timeout, which the test would have to wait for
    } else if constexpr (std::is_integral_v<T>) {
      return one_of<T>({0, 1, 7, static_cast<T>(SIZE_MAX), static_cast<T>(SIZE_MAX - 7),
                        static_cast<T>(std::size_t{1} << 60)});
    } else {
      static_assert(std::is_pointer_v<T>);
      return random_() % 8 == 0 ? nullptr : pointer<std::remove_pointer_t<T>>();
    }
  }

 private:
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[random_() % all.size()];
  }

  template <class T>
  T* keep(std::size_t count) {
    auto kept = std::make_shared<std::vector<T>>(count);
    after_.emplace_back([kept] {});
    return kept->data();
  }

  const char* text();
  const char* json();
  const char* host() {
    return one_of<const char*>({nullptr, "", "127.0.0.1"});
  }  // no name that needs a lookup

  onehop_store* handle(onehop_store*) { return world_.store; }
  onehop_tcp_server* handle(onehop_tcp_server*) { return world_.server; }
  onehop_store_exchange* handle(onehop_store_exchange*) { return world_.exchange; }
  onehop_payloads* handle(onehop_payloads*) { return world_.payloads; }
  onehop_group* handle(onehop_group*) { return world_.group; }
  onehop_buffer* handle(onehop_buffer*) { return world_.buffer; }
  onehop_pool* handle(onehop_pool*) { return world_.pool; }
  onehop_ipc_channel* handle(onehop_ipc_channel*) { return world_.channel; }
  onehop_intra_node_comm* handle(onehop_intra_node_comm*) { return world_.comm; }
  onehop_topology* handle(onehop_topology*) { return world_.topology; }
  onehop_tuning* handle(onehop_tuning*) { return world_.tuning; }

  // The fields of options. Result structures have no fields to set.
  void fill(onehop_join_options_t& options);
  void fill(onehop_call_options_t& options);
  void fill(onehop_tcp_options_t& options);
  void fill(onehop_buffer_options_t& options) { options.channels = make<int>(); }
  void fill(onehop_intra_node_options_t& options);
  void fill(onehop_store_callbacks_t& callbacks);
  template <class T>
  void fill(T& /*result*/) {}

  template <class T>
  T* pointer() {
    using Plain = std::remove_const_t<T>;
    if constexpr (std::is_same_v<T, const char>) {
      return text();
    } else if constexpr (std::is_same_v<T, const char* const>) {
      const char** const keys = keep<const char*>(64);
      for (int i = 0; i < 64; ++i) keys[i] = make<const char*>();
      return keys;
    } else if constexpr (std::is_function_v<T>) {
      return [](onehop_group_t*, void*) -> onehop_status_t { return 99; };
    } else if constexpr (std::is_void_v<T>) {
      return keep<std::uint64_t>(8192);
    } else if constexpr (std::is_integral_v<T>) {
      Plain* const all = keep<Plain>(64);
      for (int i = 0; i < 64; ++i) all[i] = make<Plain>();
      return all;
    } else if constexpr (std::is_same_v<T, onehop_group_t* const>) {
      onehop_group_t** const groups = keep<onehop_group_t*>(64);
      for (int i = 0; i < 64; ++i) groups[i] = make<onehop_group_t*>();
      return groups;
    } else if constexpr (std::is_pointer_v<T>) {
      T* const slots = keep<T>(64);
      after_.emplace_back([slots] {
        for (int i = 0; i < 64; ++i) dispose(slots[i]);
      });
      return slots;
    } else if constexpr (requires(Plain * each) { handle(each); }) {
      return handle(static_cast<Plain*>(nullptr));
    } else if constexpr (requires { sizeof(Plain); }) {
      auto* const structure = reinterpret_cast<Plain*>(keep<std::uint64_t>(1024));
      structure->size = sizeof(Plain);
      fill(*structure);
      if (random_() % 4 == 0)
        structure->size = one_of<std::size_t>({0, 1, sizeof(Plain) - 1, sizeof(Plain) + 8, 4097, SIZE_MAX});
      return structure;
    } else {
      return nullptr;  // a handle that only a GPU or a callback can provide
    }
  }

  World& world_;
  std::mt19937& random_;
  std::deque<std::function<void()>> after_;
};

}  // namespace onehop::misuse
