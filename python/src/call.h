// SPDX-License-Identifier: Apache-2.0
// One call of a collective, send or receive: reads arguments of Python, tells the other ranks what is wrong with them, and
// keeps what a queued call uses.
#pragma once

#include <nanobind/nanobind.h>
#include <onehop/c_api.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "errors.h"
#include "given.h"
#include "group.h"
#include "text.h"

namespace onehop_python {

/// The keyword arguments that all calls have.
struct Settings {
  nb::handle stream;
  nb::handle dtype;
  nb::handle algorithm;
  Given<bool> symmetric;
  Given<double> factor;
  nb::handle timeout;
  nb::handle own_factor = nb::none();
};

/// The number of elements of each block of all_to_all_v, and where it begins.
struct Blocks {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> offsets;
};

/// What queued calls use, until the group of calls of this thread ends.
struct Queue {
  int depth = 0;
  std::vector<Array> arrays;
  std::vector<nb::object> groups;
  std::vector<std::pair<Blocks, Blocks>> blocks;
};

Queue& queue();

/// One call: reads its arguments, tells the other ranks if that fails, and makes it.
class Call {
 public:
  Call(nb::handle self, onehop_collective_t collective, const Settings& settings)
      : self_(self), group_(object_of<Group>(self)), settings_(settings) {
    onehop_call_init(&request, sizeof request);
    request.collective = collective;
  }

  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(group_.size()); }
  [[nodiscard]] int rank() const { return onehop_group_rank(group_.handle()); }

  /// Reads the root, or the peer of a send or recv. Returns whether it is this rank.
  bool root(const Given<int>& given, const char* name = "root") {
    request.root = given.read(name, "the number of a rank");
    return request.root == rank();
  }
  /// The array that the call reads.
  const Array& input(nb::handle object, const char* name) {
    in_ = read_array(object, settings_.dtype, name);
    require_here(in_, object, name);
    request.in = in_.data;
    set_type(in_, name);
    return in_;
  }
  /// The array that the call writes.
  const Array& output(nb::handle object, const char* name) {
    out_ = read_array(object, settings_.dtype, name);
    require_here(out_, object, name);
    if (out_.read_only) raise_invalid(std::string(name) + ", " + type_text(object) + ", is read-only");
    request.out = out_.data;
    set_type(out_, name);
    return out_;
  }
  /// The same, of `count` elements.
  void output(nb::handle object, const char* name, std::size_t count) {
    require_count(name, output(object, name).count, count);
  }
  /// An input and, unless it is None, an output of one size; `in_place`: both are `x`.
  void input_and_output(nb::handle x, nb::handle out, bool in_place) {
    request.count = in_place ? output(x, "x").count : input(x, "x").count;
    if (in_place) {
      request.in = out_.data;
    } else if (!out.is_none()) {
      output(out, "out", request.count);
    }
  }
  void require_count(const char* name, std::size_t count, std::size_t expected) const {
    if (count == expected) return;
    raise_invalid(std::string(name) + " has " + std::to_string(count) + " elements; this call needs " +
                  std::to_string(expected));
  }
  /// The elements of each of as many blocks as there are ranks.
  [[nodiscard]] std::size_t block(const char* name, std::size_t count) const {
    if (count % ranks() != 0) {
      raise_invalid(std::string(name) + " has " + std::to_string(count) + " elements, which " +
                    std::to_string(ranks()) + " ranks cannot divide");
    }
    return count / ranks();
  }
  Blocks blocks(nb::handle counts, const char* name, std::size_t elements, const char* array) const {
    Blocks blocks;
    std::size_t total = 0;
    if (!nb::hasattr(counts, "__iter__") && PySequence_Check(counts.ptr()) == 0)
      raise_invalid(std::string(name) + " is " + quoted(counts) + "; pass a count for each rank");
    for (const nb::handle each : nb::borrow(counts)) {
      std::size_t count = 0;
      if (!nb::try_cast(each, count))
        raise_invalid(std::string(name) + " has " + quoted(each) + ", not a count");
      blocks.counts.push_back(count);
      blocks.offsets.push_back(total);
      if (__builtin_add_overflow(total, count, &total))
        raise_invalid(std::string(name) + " adds up to more than the address space");
    }
    require_count(name, blocks.counts.size(), ranks());
    if (total > elements) {
      raise_invalid(std::string(name) + " adds up to " + std::to_string(total) + " elements; " + array +
                    " has " + std::to_string(elements));
    }
    return blocks;
  }

  /// `prepare` fills `request`.
  template <class Prepare>
  void make(Prepare&& prepare) {
    try {
      prepare();
      if (type_ == kBool) request.op = op_of_booleans(request.op);
      set_options();
    } catch (...) {
      if (queue().depth == 0) {
        refuse([&](onehop_status_t status, const char* reason) {
          return onehop_refuse_call(group_.handle(), request.collective, status, reason);
        });
      }
      raise_interrupt();  // Ctrl-C while the other ranks were told
      throw;
    }
    run([&] { return onehop_run(group_.handle(), &request, nullptr); });
    if (queue().depth > 0) keep();
  }

  onehop_call_t request;

 private:
  void require_here(const Array& array, nb::handle object, const char* name) const {
    require_reachable(array, object, name);
    if (array.count > 0 && !group_.on_host() && !array.on_gpu) {
      raise_invalid(std::string(name) + ", " + type_text(object) +
                    ", is in host memory, but this rank is on cuda:" + std::to_string(group_.device()));
    }
  }
  /// The same, where memory of the host will do as well.
  void require_reachable(const Array& array, nb::handle object, const char* name) const {
    if (array.count == 0) return;
    if (group_.on_host() && array.on_gpu) {
      raise_invalid(std::string(name) + ", " + type_text(object) +
                    ", is in GPU memory, but this is a group of host ranks; join with device=\"cuda\"");
    }
    if (array.on_gpu && array.device >= 0 && array.device != group_.device()) {
      raise_invalid(std::string(name) + ", " + type_text(object) +
                    ", is on cuda:" + std::to_string(array.device) +
                    ", but this rank is on cuda:" + std::to_string(group_.device()));
    }
  }
  void set_type(const Array& array, const char* name) {
    if (type_ >= 0 && type_ != array.dtype) {
      raise_invalid(std::string(name) + " has type " + name_of(array.dtype) + ", the input " +
                    name_of(type_));
    }
    type_ = array.dtype;
    request.dtype = type_ == kBool ? ONEHOP_DTYPE_U8 : type_;
  }
  /// As in torch.distributed: of bytes of 0 and 1, the largest is the logical or, the smallest the logical and.
  static onehop_op_t op_of_booleans(onehop_op_t op) {
    switch (op) {
      case ONEHOP_OP_SUM:
        return ONEHOP_OP_MAX;
      case ONEHOP_OP_PROD:
        return ONEHOP_OP_MIN;
      case ONEHOP_OP_MIN:
      case ONEHOP_OP_MAX:
        return op;
      default:
        raise_invalid(std::string("op is \"") + onehop_op_name(op) +
                      "\", which is not defined for booleans; use \"sum\", \"prod\", \"min\" or \"max\"");
    }
  }
  void set_options() {
    if (!group_.on_host()) {
      const Framework framework = out_.data != nullptr ? out_.framework : in_.framework;
      request.stream = read_stream(settings_.stream, framework, group_.device());
    }
    if (!settings_.timeout.is_none()) request.timeout_ms = read_timeout(settings_.timeout);
    if (!settings_.algorithm.is_none()) {
      const std::string name = read_text_of(settings_.algorithm, "algorithm");
      check(onehop_algorithm_parse(name.c_str(), &request.algorithm));
    }
    request.symmetric = settings_.symmetric.read("symmetric", "True or False") ? 1 : 0;
    request.factor = settings_.factor.read("factor", "a number");
    if (!settings_.own_factor.is_none()) read_own_factor(settings_.own_factor);
  }
  /// An array of one element, because a number could not say that it lies in GPU memory.
  void read_own_factor(nb::handle object) {
    const char* const name = "own_factor";
    own_factor_ = read_array(object, settings_.dtype, name);
    require_reachable(own_factor_, object, name);
    set_type(own_factor_, name);
    require_count(name, own_factor_.count, 1);
    request.own_factor = own_factor_.data;
    request.own_factor_on_host = own_factor_.on_gpu ? 0 : 1;
  }
  void keep() {
    queue().arrays.push_back(std::move(in_));
    queue().arrays.push_back(std::move(out_));
    if (request.own_factor != nullptr) queue().arrays.push_back(std::move(own_factor_));
    queue().groups.push_back(nb::borrow(self_));
  }

  nb::handle self_;
  Group& group_;
  const Settings& settings_;
  onehop_dtype_t type_ = -1;  ///< of the arrays, before booleans become bytes
  Array in_;
  Array out_;
  Array own_factor_;
};

}  // namespace onehop_python
