// SPDX-License-Identifier: Apache-2.0
// Symmetric memory: buffers, signals and pools.
#include "buffer.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <array>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "errors.h"
#include "given.h"
#include "group.h"
#include "memory.h"
#include "traverse.h"

namespace onehop_python {
namespace {

/// `group` is the Python object of the group: a buffer keeps it, and it knows streams and devices.
class Buffer {
 public:
  Buffer(Handle<onehop_buffer_t> handle, nb::object group, nb::object keeps)
      : group_(std::move(group)), keeps_(std::move(keeps)), handle_(std::move(handle)) {}

  [[nodiscard]] onehop_buffer_t* handle() const { return handle_.get(); }
  [[nodiscard]] const nb::object& group_object() const { return group_; }
  [[nodiscard]] Group& group() const { return object_of<Group>(group_); }
  /// What a registered buffer lies in.
  [[nodiscard]] const nb::object& keeps() const { return keeps_; }
  [[nodiscard]] std::array<const nb::object*, 2> kept() const { return {&group_, &keeps_}; }

 private:
  // The memory of a registered buffer is freed after the buffer.
  nb::object group_;
  nb::object keeps_;
  Handle<onehop_buffer_t> handle_;
};

class Pool {
 public:
  Pool(Handle<onehop_pool_t> handle, nb::object group)
      : group_(std::move(group)), handle_(std::move(handle)) {}
  [[nodiscard]] onehop_pool_t* handle() const { return handle_.get(); }
  [[nodiscard]] const nb::object& group_object() const { return group_; }
  [[nodiscard]] Group& group() const { return object_of<Group>(group_); }
  [[nodiscard]] std::array<const nb::object*, 1> kept() const { return {&group_}; }

 private:
  nb::object group_;
  Handle<onehop_pool_t> handle_;
};

onehop_buffer_options_t buffer_options(const Given<int>& channels) {
  onehop_buffer_options_t options;
  onehop_buffer_options_init(&options, sizeof options);
  options.channels = channels.read("channels", "a number of signal channels");
  return options;
}

/// Reads the arguments of a call that allocates. Returns its number of bytes.
template <class Read>
std::size_t read_allocation(onehop_group_t* group, const Given<std::size_t>& nbytes, Read&& read) {
  std::size_t count = 0;
  read_or_refuse(
      [&] {
        count = nbytes.read("nbytes", "a number of bytes");
        read();
      },
      [&](onehop_status_t status, const char* reason) {
        return onehop_refuse_allocation(group, status, reason);
      });
  return count;
}

Buffer allocate(nb::handle group, const Given<std::size_t>& nbytes, const Given<int>& channels) {
  onehop_group_t* const handle = object_of<Group>(group).handle();
  onehop_buffer_options_t options;
  const std::size_t count = read_allocation(handle, nbytes, [&] { options = buffer_options(channels); });
  onehop_buffer_t* buffer = nullptr;
  run([&] { return onehop_group_allocate_with(handle, count, &options, &buffer); });
  return {Handle<onehop_buffer_t>(buffer), nb::borrow(group), nb::none()};
}

Buffer register_buffer(nb::handle group, nb::handle x, const Given<int>& channels) {
  onehop_group_t* const handle = object_of<Group>(group).handle();
  onehop_buffer_t* buffer = nullptr;
  onehop_buffer_options_t options;
  Array array;
  read_or_refuse(
      [&] {
        options = buffer_options(channels);
        // Of any type: only the bytes matter.
        array = read_array(x, nb::str("u8"), "x");
      },
      [&](onehop_status_t status, const char* reason) {
        return onehop_refuse_registration(handle, status, reason);
      });
  run([&] { return onehop_group_register_buffer_with(handle, array.data, array.count, &options, &buffer); });
  return {Handle<onehop_buffer_t>(buffer), nb::borrow(group), nb::borrow(x)};
}

Memory memory_of(nb::handle self, void* data) {
  const Buffer& buffer = object_of<Buffer>(self);
  return {data, onehop_buffer_bytes(buffer.handle()), buffer.group().device(), nb::borrow(self)};
}

Memory peer(nb::handle self, int rank) {
  void* data = nullptr;
  check(onehop_buffer_peer(object_of<Buffer>(self).handle(), rank, &data));
  return memory_of(self, data);
}

Buffer slice(const Buffer& self, nb::handle key) {
  if (!PySlice_Check(key.ptr()))
    raise_invalid("a buffer takes slices of bytes such as b[4096:8192], not " + quoted(key));
  Py_ssize_t start = 0;
  Py_ssize_t stop = 0;
  Py_ssize_t step = 0;
  if (PySlice_Unpack(key.ptr(), &start, &stop, &step) != 0) throw nb::python_error();
  if (step != 1) raise_invalid("a slice of a buffer has no step, got " + quoted(key));
  const auto size = static_cast<Py_ssize_t>(onehop_buffer_bytes(self.handle()));
  const Py_ssize_t length = PySlice_AdjustIndices(size, &start, &stop, 1);
  onehop_buffer_t* part = nullptr;
  check(onehop_buffer_sub(self.handle(), static_cast<std::size_t>(start), static_cast<std::size_t>(length),
                          &part));
  return {Handle<onehop_buffer_t>(part), self.group_object(), self.keeps()};
}

/// Makes the form of a call for this buffer: on the host it waits; on a GPU it enqueues the operation on `stream`.
template <class... Arguments>
void signal(const Buffer& self, nb::handle stream,
            onehop_status_t (*on_host)(const onehop_buffer_t*, Arguments...),
            onehop_status_t (*on_stream)(const onehop_buffer_t*, void*, Arguments...),
            std::type_identity_t<Arguments>... arguments) {
  if (self.group().on_host()) {
    run([&] { return on_host(self.handle(), arguments...); });
  } else {
    void* const queue = self.group().stream(stream);
    run([&] { return on_stream(self.handle(), queue, arguments...); });
  }
}

nb::object device_view(const Buffer& self, nb::handle timeout) {
  onehop_buffer_view_t view;
  onehop_buffer_view_init(&view, sizeof view);
  check(onehop_buffer_view(self.handle(), &view));
  nb::list peers;
  nb::list pads;
  for (int r = 0; r < view.world_size; ++r) {
    peers.append(reinterpret_cast<std::uintptr_t>(view.peers[r]) + view.offset);
    pads.append(reinterpret_cast<std::uintptr_t>(view.signal_pads[r]));
  }
  nb::object raw = nb::none();
  if (!self.group().on_host()) {
    std::string bytes(onehop_device_view_bytes(), '\0');
    check(onehop_buffer_device_view(self.handle(), read_timeout(timeout), bytes.data(), bytes.size()));
    raw = nb::bytes(bytes.data(), bytes.size());
  }
  return nb::module_::import_("onehop._symmetric")
      .attr("DeviceView")(view.rank, view.world_size, view.bytes, nb::tuple(peers), nb::tuple(pads),
                          view.channels, raw);
}

Pool make_pool(nb::handle group, const Given<std::size_t>& nbytes) {
  onehop_group_t* const handle = object_of<Group>(group).handle();
  const std::size_t count = read_allocation(handle, nbytes, [] {});
  onehop_pool_t* pool = nullptr;
  run([&] { return onehop_pool_create(handle, count, &pool); });
  return {Handle<onehop_pool_t>(pool), nb::borrow(group)};
}

}  // namespace

void add_buffers(nb::module_& module) {
  const auto stream = nb::arg("stream").none() = nb::none();
  const auto timeout = nb::arg("timeout").none() = nb::none();
  const auto channel = nb::arg("channel") = 0;

  nb::class_<Buffer>(
      module, "SymmetricBuffer", nb::is_weak_referenceable(), nb::type_slots(traverse_slots<Buffer>),
      "The same number of bytes on every rank, mapped by every rank. `Group.allocate` and "
      "`Group.register` make one.\n\n"
      "Signals and barriers have channels. On the host they wait; on a GPU they are enqueued on `stream`, "
      "and a wait\nthat fails there fails the group.")
      .def_prop_ro(
          "group", [](const Buffer& self) { return self.group_object(); },
          nb::sig("def group(self, /) -> Group"), "The group that the buffer belongs to.")
      .def_prop_ro(
          "nbytes", [](const Buffer& self) { return onehop_buffer_bytes(self.handle()); },
          "Bytes of each rank's part.")
      .def_prop_ro(
          "channels", [](const Buffer& self) { return onehop_buffer_channels(self.handle()); },
          "Number of signal channels.")
      .def_prop_ro(
          "local",
          [](nb::handle self) {
            return memory_of(self, onehop_buffer_local(object_of<Buffer>(self).handle()));
          },
          nb::sig("def local(self, /) -> Memory"), "This rank's part.")
      .def("peer", peer, nb::arg("rank"), nb::sig("def peer(self, rank: int) -> Memory"),
           "Rank `rank`'s part, at its address in this process.")
      .def("__getitem__", slice, nb::arg("key"),
           nb::sig("def __getitem__(self, key: slice) -> SymmetricBuffer"),
           "Bytes start to stop of every rank's part, with the same signal channels. Not collective.")
      .def("__len__", [](const Buffer& self) { return onehop_buffer_bytes(self.handle()); })
      .def(
          "barrier",
          [](const Buffer& self, int channel_, nb::handle stream_, nb::handle limit) {
            signal(self, stream_, onehop_buffer_barrier, onehop_buffer_barrier_on_stream, channel_,
                   read_timeout(limit));
          },
          channel, nb::kw_only(), stream, timeout,
          nb::sig("def barrier(self, channel: int = 0, *, stream: Stream = None, timeout: float | timedelta "
                  "| None = "
                  "None) -> None"),
          "Orders all ranks: what any rank wrote before is visible to all ranks afterwards. Collective.")
      .def(
          "put_signal",
          [](const Buffer& self, int dst, int channel_, nb::handle stream_) {
            signal(self, stream_, onehop_buffer_put_signal, onehop_buffer_put_signal_on_stream, dst,
                   channel_);
          },
          nb::arg("dst"), channel, nb::kw_only(), stream,
          nb::sig("def put_signal(self, dst: int, channel: int = 0, *, stream: Stream = None) -> None"),
          "Signals rank `dst` that what this rank wrote before is ready.")
      .def(
          "wait_signal",
          [](const Buffer& self, int src, int channel_, nb::handle stream_, nb::handle limit) {
            signal(self, stream_, onehop_buffer_wait_signal, onehop_buffer_wait_signal_on_stream, src,
                   channel_, read_timeout(limit));
          },
          nb::arg("src"), channel, nb::kw_only(), stream, timeout,
          nb::sig(
              "def wait_signal(self, src: int, channel: int = 0, *, stream: Stream = None, timeout: float | "
              "timedelta | None = None) -> None"),
          "Waits for the next signal from rank `src`.")
      .def("device_view", device_view, timeout,
           nb::sig("def device_view(self, timeout: float | timedelta | None = None) -> DeviceView"),
           "The pointers that kernels of your own (Triton, Numba, CUDA) need. Valid while the buffer "
           "lives.\n\n"
           "`timeout` applies to each wait of a kernel that takes the `raw` view.")
      .def("__repr__", [](const Buffer& self) {
        return "<onehop.SymmetricBuffer of " + std::to_string(onehop_buffer_bytes(self.handle())) +
               " bytes on each of " + std::to_string(self.group().size()) + " ranks>";
      });

  nb::class_<Pool>(
      module, "Pool", nb::type_slots(traverse_slots<Pool>),
      "Symmetric memory for allocators. Ranks that make the same calls in the same order get the same "
      "offsets.\n\nSee onehop.torch for tensors of PyTorch.")
      .def(
          "__init__",
          [](Pool* self, nb::handle group, const Given<std::size_t>& nbytes) {
            new (self) Pool(make_pool(group, nbytes));
          },
          nb::arg("group"), nb::arg("nbytes").none(),
          nb::sig("def __init__(self, group: Group, nbytes: int) -> None"),
          "Allocates `nbytes` bytes on every rank. Collective.")
      .def_prop_ro(
          "group", [](const Pool& self) { return self.group_object(); },
          nb::sig("def group(self, /) -> Group"), "The group that the pool belongs to.")
      .def_prop_ro(
          "free_bytes", [](const Pool& self) { return onehop_pool_free_bytes(self.handle()); },
          "Total of free bytes, over all free ranges.")
      .def(
          "buffer",
          [](const Pool& self) {
            onehop_buffer_t* buffer = nullptr;
            check(onehop_pool_buffer(self.handle(), &buffer));
            return Buffer(Handle<onehop_buffer_t>(buffer), self.group_object(), nb::none());
          },
          nb::sig("def buffer(self) -> SymmetricBuffer"),
          "All of the pool's memory, for peers' addresses and signals.")
      .def(
          "allocate",
          [](nb::handle self, std::size_t nbytes) {
            const Pool& pool = object_of<Pool>(self);
            void* data = nullptr;
            check(onehop_pool_allocate(pool.handle(), nbytes, nullptr, &data));
            return Memory(data, nbytes, pool.group().device(), nb::borrow(self));
          },
          nb::arg("nbytes"), nb::sig("def allocate(self, nbytes: int) -> Memory"),
          "Allocates bytes, aligned to 512 and not zeroed. `free` returns them; deleting the object does "
          "not.")
      .def(
          "free",
          [](const Pool& self, const Memory& memory) {
            check(onehop_pool_deallocate(self.handle(), memory.data(), nullptr));
          },
          nb::arg("memory"), "Frees what `allocate` returned.")
      .def(
          "offset",
          [](const Pool& self, nb::handle x) {
            const Array array = read_array(x, nb::str("u8"), "x");
            std::size_t offset = 0;
            check(onehop_pool_offset(self.handle(), array.data, &offset));
            return offset;
          },
          nb::arg("x"), nb::sig("def offset(self, x: Array) -> int"),
          "Offset of `x` in the pool's memory, in bytes.")
      .def(
          "use", [](const Pool& self) { check(onehop_pool_use(self.handle())); },
          "Makes onehop_pool_malloc, the allocation function for frameworks, use this pool for the group's "
          "device.");

  module.def("_allocate", allocate, nb::arg("group"), nb::arg("nbytes").none(), nb::arg("channels").none());
  // Raises `error`, of which the other ranks hear.
  module.def(
      "_refuse_allocation",
      [](nb::handle group, nb::handle error) {
        (void)read_allocation(object_of<Group>(group).handle(), Given<std::size_t>(std::size_t{0}), [&] {
          PyErr_SetObject(error.type().ptr(), error.ptr());
          throw nb::python_error();
        });
      },
      nb::arg("group"), nb::arg("error"));
  module.def("_register", register_buffer, nb::arg("group"), nb::arg("x").none(), nb::arg("channels").none());
}

}  // namespace onehop_python
