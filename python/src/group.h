// SPDX-License-Identifier: Apache-2.0
// The handle of a group that every method of the Python class works on.
#pragma once

#include <nanobind/nanobind.h>
#include <onehop/c_api.h>

#include <memory>

#include "array.h"
#include "gil.h"

namespace onehop_python {

namespace nb = nanobind;

/// Releases handles of the C API. Leaving a group can wait, so it is done without the GIL.
struct Destroyer {
  void operator()(onehop_group_t* group) const {
    without_gil([&] { onehop_group_destroy(group); });
  }
  void operator()(onehop_buffer_t* buffer) const {
    without_gil([&] { onehop_buffer_destroy(buffer); });
  }
  void operator()(onehop_pool_t* pool) const {
    without_gil([&] { onehop_pool_destroy(pool); });
  }
  void operator()(onehop_store_t* store) const {
    without_gil([&] { onehop_store_destroy(store); });
  }
  void operator()(onehop_tcp_server_t* server) const {
    without_gil([&] { onehop_tcp_server_destroy(server); });
  }
  void operator()(onehop_payloads_t* payloads) const { onehop_payloads_destroy(payloads); }
  void operator()(onehop_topology_t* topology) const { onehop_topology_destroy(topology); }
  void operator()(onehop_peer_report_t* report) const { onehop_peer_report_destroy(report); }
  void operator()(char* text) const { onehop_free(text); }
};
template <class T>
using Handle = std::unique_ptr<T, Destroyer>;

class Group {
 public:
  explicit Group(Handle<onehop_group_t> handle)
      : handle_(std::move(handle)),
        size_(onehop_group_size(handle_.get())),
        device_(onehop_group_device(handle_.get())) {}

  [[nodiscard]] onehop_group_t* handle() const { return handle_.get(); }
  [[nodiscard]] int size() const { return size_; }
  /// A CUDA ordinal, or ONEHOP_DEVICE_HOST.
  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] bool on_host() const { return device_ == ONEHOP_DEVICE_HOST; }
  /// The stream of a call that has no array. The host backend has none.
  [[nodiscard]] void* stream(nb::handle stream) const {
    return on_host() ? nullptr : read_stream(stream, loaded_framework(), device_);
  }

 private:
  Handle<onehop_group_t> handle_;
  int size_;
  int device_;
};

void add_group(nb::module_& module);
void add_collectives(nb::class_<Group>& group, nb::module_& module);

}  // namespace onehop_python
