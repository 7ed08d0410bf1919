// SPDX-License-Identifier: Apache-2.0
// Collectives, send and receive on Python's arrays.
#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "errors.h"
#include "group.h"
#include "text.h"

namespace onehop_python {

Queue& queue() {
  // Never destroyed: a thread may end after the interpreter.
  thread_local Queue* const of_thread = new Queue;
  return *of_thread;
}

namespace {

onehop_op_t read_op(nb::handle op) {
  // Text compares fast, and there are few.
  if (!PyUnicode_Check(op.ptr())) raise_invalid("op is " + quoted(op) + ", not a string such as \"sum\"");
  const std::string text = read_text_of(op, "op");
  for (onehop_op_t each = ONEHOP_OP_SUM; each <= ONEHOP_OP_PREMUL_SUM; ++each) {
    if (text == onehop_op_name(each)) return each;
  }
  onehop_op_t parsed = ONEHOP_OP_SUM;
  check(onehop_op_parse(text.c_str(), &parsed));
  return parsed;
}

/// A new array like `x`, with the first dimension `factor` times as long, or divided by `divisor`.
nb::object array_like(nb::handle x, int factor, int divisor) {
  return nb::module_::import_("onehop._arrays").attr("like")(x, factor, divisor);
}

nb::object all_reduce(nb::handle self, nb::object x, nb::object out, nb::handle op, nb::handle stream,
                      nb::handle dtype, nb::handle algorithm, Given<bool> symmetric, Given<double> factor,
                      nb::handle own_factor, nb::handle timeout) {
  const Settings settings{stream, dtype, algorithm, symmetric, factor, timeout, own_factor};
  Call call(self, ONEHOP_COLLECTIVE_ALL_REDUCE, settings);
  if (out.is_none()) out = x;
  call.make([&] {
    call.request.op = read_op(op);
    call.input_and_output(x, out, out.is(x));
  });
  return out;
}

nb::object all_gather(nb::handle self, nb::object x, nb::object out, nb::handle stream, nb::handle dtype,
                      nb::handle algorithm, Given<bool> symmetric, nb::handle timeout) {
  const Settings settings{stream, dtype, algorithm, symmetric, Given(1.0), timeout};
  Call call(self, ONEHOP_COLLECTIVE_ALL_GATHER, settings);
  call.make([&] {
    call.request.count = call.input(x, "x").count;
    if (out.is_none()) out = array_like(x, int(call.ranks()), 1);
    call.output(out, "out", call.request.count * call.ranks());
  });
  return out;
}

nb::object reduce_scatter(nb::handle self, nb::object x, nb::object out, nb::handle op, nb::handle stream,
                          nb::handle dtype, nb::handle algorithm, Given<bool> symmetric, Given<double> factor,
                          nb::handle own_factor, nb::handle timeout) {
  const Settings settings{stream, dtype, algorithm, symmetric, factor, timeout, own_factor};
  Call call(self, ONEHOP_COLLECTIVE_REDUCE_SCATTER, settings);
  call.make([&] {
    call.request.op = read_op(op);
    call.request.count = call.block("x", call.input(x, "x").count);
    if (out.is_none()) out = array_like(x, 1, int(call.ranks()));
    call.output(out, "out", call.request.count);
  });
  return out;
}

nb::object all_to_all(nb::handle self, nb::object x, nb::object out, nb::handle stream, nb::handle dtype,
                      nb::handle algorithm, Given<bool> symmetric, nb::handle timeout) {
  const Settings settings{stream, dtype, algorithm, symmetric, Given(1.0), timeout};
  Call call(self, ONEHOP_COLLECTIVE_ALL_TO_ALL, settings);
  call.make([&] {
    const std::size_t count = call.input(x, "x").count;
    call.request.count = call.block("x", count);
    if (out.is_none()) out = array_like(x, 1, 1);
    call.output(out, "out", count);
  });
  return out;
}

nb::object all_to_all_v(nb::handle self, nb::object x, nb::handle in_counts, nb::object out,
                        nb::handle out_counts, nb::handle stream, nb::handle dtype, nb::handle timeout) {
  const Settings settings{stream, dtype, nb::none(), Given(false), Given(1.0), timeout};
  Call call(self, ONEHOP_COLLECTIVE_ALL_TO_ALL_V, settings);
  Blocks in;
  Blocks to;
  call.make([&] {
    in = call.blocks(in_counts, "in_counts", call.input(x, "x").count, "x");
    to = call.blocks(out_counts, "out_counts", call.output(out, "out").count, "out");
    call.request.in_counts = in.counts.data();
    call.request.in_offsets = in.offsets.data();
    call.request.out_counts = to.counts.data();
    call.request.out_offsets = to.offsets.data();
  });
  // The vectors' elements stay where they are.
  if (queue().depth > 0) queue().blocks.emplace_back(std::move(in), std::move(to));
  return out;
}

nb::object broadcast(nb::handle self, nb::object x, Given<int> root, nb::object out, nb::handle stream,
                     nb::handle dtype, Given<bool> symmetric, nb::handle timeout) {
  const Settings settings{stream, dtype, nb::none(), symmetric, Given(1.0), timeout};
  Call call(self, ONEHOP_COLLECTIVE_BROADCAST, settings);
  if (out.is_none()) out = x;
  call.make([&] {
    if (const bool is_root = call.root(root); out.is(x) && is_root) {  // which only reads
      call.request.count = call.input(x, "x").count;
      call.request.out = const_cast<void*>(call.request.in);
    } else {
      call.input_and_output(x, out, out.is(x));
    }
  });
  return out;
}

nb::object reduce(nb::handle self, nb::object x, nb::object out, nb::handle op, Given<int> root,
                  nb::handle stream, nb::handle dtype, Given<bool> symmetric, Given<double> factor,
                  nb::handle own_factor, nb::handle timeout) {
  const Settings settings{stream, dtype, nb::none(), symmetric, factor, timeout, own_factor};
  Call call(self, ONEHOP_COLLECTIVE_REDUCE, settings);
  call.make([&] {
    const bool is_root = call.root(root);
    if (is_root && out.is_none()) out = x;
    call.request.op = read_op(op);
    call.input_and_output(x, out, is_root && out.is(x));
  });
  return out;
}

nb::object gather(nb::handle self, nb::object x, nb::object out, Given<int> root, nb::handle stream,
                  nb::handle dtype, Given<bool> symmetric, nb::handle timeout) {
  const Settings settings{stream, dtype, nb::none(), symmetric, Given(1.0), timeout};
  Call call(self, ONEHOP_COLLECTIVE_GATHER, settings);
  call.make([&] {
    const bool is_root = call.root(root);
    call.request.count = call.input(x, "x").count;
    if (is_root && out.is_none()) out = array_like(x, int(call.ranks()), 1);
    if (!out.is_none()) call.output(out, "out", call.request.count * call.ranks());
  });
  return out;
}

nb::object scatter(nb::handle self, nb::object x, nb::object out, Given<int> root, nb::handle stream,
                   nb::handle dtype, Given<bool> symmetric, nb::handle timeout) {
  const Settings settings{stream, dtype, nb::none(), symmetric, Given(1.0), timeout};
  Call call(self, ONEHOP_COLLECTIVE_SCATTER, settings);
  call.make([&] {
    if (call.root(root)) {
      call.request.count = call.block("x", call.input(x, "x").count);
      if (out.is_none()) out = array_like(x, 1, int(call.ranks()));
      call.output(out, "out", call.request.count);
    } else {
      if (out.is_none()) raise_invalid("out is None; every rank but the root passes where its block goes");
      call.request.count = call.output(out, "out").count;
    }
  });
  return out;
}

void send(nb::handle self, nb::object x, Given<int> dst, nb::handle stream, nb::handle dtype,
          nb::handle timeout) {
  const Settings settings{stream, dtype, nb::none(), Given(false), Given(1.0), timeout};
  Call call(self, ONEHOP_COLLECTIVE_SEND, settings);
  call.make([&] {
    call.root(dst, "dst");
    call.request.count = call.input(x, "x").count;
  });
}

nb::object recv(nb::handle self, nb::object x, Given<int> src, nb::handle stream, nb::handle dtype,
                nb::handle timeout) {
  const Settings settings{stream, dtype, nb::none(), Given(false), Given(1.0), timeout};
  Call call(self, ONEHOP_COLLECTIVE_RECV, settings);
  call.make([&] {
    call.root(src, "src");
    call.request.count = call.output(x, "x").count;
  });
  return x;
}

/// Address and size of an array's memory.
nb::tuple address(nb::handle x) {
  const Array array = read_array(x, nb::none(), "x");
  return nb::make_tuple(reinterpret_cast<std::uintptr_t>(array.data), array.count * size_of(array.dtype));
}

void begin_group_call() {
  check(onehop_group_call_begin());
  ++queue().depth;
}

/// `drop`: the body failed, and its calls must not be made.
void end_group_call(bool drop) {
  if (queue().depth == 0) raise_invalid("this thread has no group of calls to end");
  Queue held;
  if (--queue().depth == 0) std::swap(held, queue());
  if (drop) {
    check(onehop_group_call_drop());
  } else {
    run([] { return onehop_group_call_end(); });
  }
}

}  // namespace

void add_collectives(nb::class_<Group>& group, nb::module_& module) {
  const auto optional = [](const char* name) { return nb::arg(name).none() = nb::none(); };
  // None is no array, op, root or the like; the call says so, to all ranks.
  const auto x = nb::arg("x").none();
  const auto stream = optional("stream");
  const auto dtype = optional("dtype");
  const auto algorithm = optional("algorithm");
  const auto timeout = optional("timeout");
  const auto symmetric = nb::arg("symmetric").none() = false;
  const auto factor = nb::arg("factor").none() = 1.0;
  const auto own_factor = optional("own_factor");
  const auto op = nb::arg("op").none() = "sum";
  const auto root = nb::arg("root").none() = 0;
  const auto keywords = nb::kw_only();

#define SIGNATURE(name, parameters, keywords, result)                                                   \
  nb::sig("def " name "(self, " parameters ", *, stream: Stream = None, dtype: DType = None, " keywords \
          "timeout: float | timedelta | None = None) -> " result)
#define CHOICE "algorithm: Algorithm | None = None, symmetric: bool = False, "
#define FACTORS "factor: float = 1.0, own_factor: Array | None = None, "
  group.def(
      "all_reduce", all_reduce, x, optional("out"), op, keywords, stream, dtype, algorithm, symmetric, factor,
      own_factor, timeout,
      SIGNATURE("all_reduce", "x: Array, out: Array | None = None, op: Op = \"sum\"", CHOICE FACTORS,
                "Array"),
      "out[i] = op over all ranks of x[i]. In place if `out` is None. Collective. Returns `out`.\n\n"
      "op: \"sum\", \"prod\", \"min\", \"max\", \"avg\", or \"premul_sum\": the sum times `factor`. Of "
      "booleans, the sum is a\nlogical or, the product a logical and; there is no mean.\n\n"
      "own_factor: of \"premul_sum\", in place of `factor`: an array of one element of the type of `x`. "
      "Each rank\nmultiplies its own `x` by its own one, which may lie in host memory or on its GPU.");
  group.def(
      "all_gather", all_gather, x, optional("out"), keywords, stream, dtype, algorithm, symmetric, timeout,
      SIGNATURE("all_gather", "x: Array, out: Array | None = None", CHOICE, "Array"),
      "Block r of `out` = rank r's `x`. Collective. Returns `out`.\n\n"
      "If `out` is None, it is allocated like `x`, with the first dimension `size` times as long. In place: "
      "`x` is this\nrank's block of `out`.");
  group.def("reduce_scatter", reduce_scatter, x, optional("out"), op, keywords, stream, dtype, algorithm,
            symmetric, factor, own_factor, timeout,
            SIGNATURE("reduce_scatter", "x: Array, out: Array | None = None, op: Op = \"sum\"",
                      CHOICE FACTORS, "Array"),
            "out[i] = op over all ranks of element i of this rank's block of their `x`. Collective. Returns "
            "`out`.\n\n"
            "If `out` is None, it is allocated like `x`, with the first dimension divided by `size`. In "
            "place: `out` "
            "is this\nrank's block of `x`.");
  group.def("all_to_all", all_to_all, x, optional("out"), keywords, stream, dtype, algorithm, symmetric,
            timeout, SIGNATURE("all_to_all", "x: Array, out: Array | None = None", CHOICE, "Array"),
            "Block s of `out` = this rank's block of rank s's `x`. Collective. Returns `out`, by default a "
            "new array.");
  group.def(
      "all_to_all_v", all_to_all_v, x, nb::arg("in_counts").none(), nb::arg("out").none(),
      nb::arg("out_counts").none(), keywords, stream, dtype, timeout,
      SIGNATURE("all_to_all_v", "x: Array, in_counts: Sequence[int], out: Array, out_counts: Sequence[int]",
                "", "Array"),
      "all_to_all with blocks of any size, one after the other. Collective. Returns `out`.\n\n"
      "in_counts[r] elements of `x` go to rank r; out_counts[r] elements of `out` come from rank r. "
      "`Mismatch` "
      "if a rank\ndoes not send what another expects.");
  group.def("broadcast", broadcast, x, root, optional("out"), keywords, stream, dtype, symmetric, timeout,
            SIGNATURE("broadcast", "x: Array, root: int = 0, out: Array | None = None",
                      "symmetric: bool = False, ", "Array"),
            "out[i] = x[i] of rank `root`. In place if `out` is None. Collective. Returns `out`.");
  group.def("reduce", reduce, x, optional("out"), op, root, keywords, stream, dtype, symmetric, factor,
            own_factor, timeout,
            SIGNATURE("reduce", "x: Array, out: Array | None = None, op: Op = \"sum\", root: int = 0",
                      "symmetric: bool = False, " FACTORS, "Array | None"),
            "out[i] = op over all ranks of x[i], on rank `root`. Collective. Returns `out`.\n\n"
            "If `out` is None, the root works in place. The other ranks need none.");
  group.def("gather", gather, x, optional("out"), root, keywords, stream, dtype, symmetric, timeout,
            SIGNATURE("gather", "x: Array, out: Array | None = None, root: int = 0",
                      "symmetric: bool = False, ", "Array | None"),
            "Block r of `out` on rank `root` = rank r's `x`. Collective. Returns `out`.\n\n"
            "If `out` is None, the root allocates it as all_gather does. The other ranks need none.");
  group.def("scatter", scatter, x, optional("out"), root, keywords, stream, dtype, symmetric, timeout,
            SIGNATURE("scatter", "x: Array | None, out: Array | None = None, root: int = 0",
                      "symmetric: bool = False, ", "Array"),
            "`out` = this rank's block of rank `root`'s `x`. Collective. Returns `out`.\n\n"
            "Only the root needs `x`. The other ranks need `out`, which the root allocates if it is None.");
  group.def("send", send, x, nb::arg("dst").none(), keywords, stream, dtype, timeout,
            SIGNATURE("send", "x: Array, dst: int", "", "None"),
            "Sends `x` to rank `dst`. The k-th send of a pair of ranks matches its k-th receive, of the same "
            "count and "
            "type.\n\nIt may return before the receive is called, but do not rely on that: use group_call.");
  group.def("recv", recv, x, nb::arg("src").none(), keywords, stream, dtype, timeout,
            SIGNATURE("recv", "x: Array, src: int", "", "Array"),
            "Receives `x` from rank `src`. Returns `x`.");
#undef FACTORS
#undef CHOICE
#undef SIGNATURE
  module.def("_address", address);
  module.def("_long_names", long_names);
  module.def("_group_call_begin", begin_group_call);
  module.def("_group_call_end", end_group_call, nb::arg("drop"));
}

}  // namespace onehop_python
