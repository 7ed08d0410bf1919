#include "conformance/all_reduce_case.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace onehop::testing {
namespace {

constexpr std::size_t kGuard = 256;
constexpr std::byte kPoison{0xa5};
// Largest distance of data from where its room begins: the shift, and what displaces ranks.
constexpr std::size_t kSlack = 64 * 8 + 64 * 64;

constexpr const char* kPlacements[] = {"ordinary",         "symmetric",   "symmetric input",
                                       "symmetric output", "sub-buffers", "even ranks only",
                                       "displaced"};
static_assert(std::size(kPlacements) == kPlacementCount);

}  // namespace

std::string AllReduceCase::describe() const {
  return fmt::format("all_reduce of {} {} {} (data {}, {}, {} elements past alignment, stream start {}, {})",
                     count, to_string(type), to_string(op), kPlacements[static_cast<int>(placement)],
                     in_place ? "in place" : "out of place", shift, start,
                     algorithm ? to_string(*algorithm) : "default algorithm");
}

Workspace::Workspace(const Backend& backend, Group& group, std::size_t max_bytes)
    : group_(group), memory_(backend.memory(group)), max_bytes_(max_bytes) {
  const std::size_t room = 2 * kGuard + kSlack + max_bytes;
  for (SymmetricBuffer& buffer : symmetric_) buffer = group.allocate(2 * room);
  for (std::byte*& data : ordinary_) data = memory_->allocate(room);
}

Workspace::~Workspace() {
  for (std::byte* const data : ordinary_) memory_->release(data);
}

std::byte* Workspace::place(const AllReduceCase& call, bool output) const {
  const auto rank = static_cast<std::size_t>(group_.rank().value);
  const std::size_t begin = kGuard + call.shift * size_of(call.type);
  const std::size_t which = output ? 1 : 0;
  switch (call.placement) {
    case Placement::symmetric:
      return symmetric_[which].local() + begin;
    case Placement::symmetric_input:
      return output ? ordinary_[1] + begin : symmetric_[0].local() + begin;
    case Placement::symmetric_output:
      return output ? symmetric_[1].local() + begin : ordinary_[0] + begin;
    case Placement::sub_buffers: {
      const std::size_t half = symmetric_[0].bytes() / 2 / 64 * 64;
      return symmetric_[0].sub(which * half, half).local() + begin;
    }
    case Placement::even_ranks_only:
      return (rank % 2 == 0 ? symmetric_[which].local() : ordinary_[which]) + begin;
    case Placement::displaced:
      return symmetric_[which].local() + begin + rank * 64;
    case Placement::ordinary:
      break;
  }
  return ordinary_[which] + begin;
}

void Workspace::put(std::byte* at, const Bytes& content) {
  image_.assign(content.size() + 2 * kGuard, kPoison);
  std::copy(content.begin(), content.end(), image_.begin() + kGuard);
  memory_->upload(at - kGuard, image_.data(), image_.size());
}

void Workspace::expect(std::byte* at, const Bytes& content, const AllReduceCase& call, const char* what) {
  image_.resize(content.size() + 2 * kGuard);
  memory_->download(image_.data(), at - kGuard, image_.size());
  const auto complain = [&](const std::string& text) {
    throw std::runtime_error(
        fmt::format("rank {} of {}: {}: {}", group_.rank().value, group_.size(), call.describe(), text));
  };
  if (!content.empty() && std::memcmp(image_.data() + kGuard, content.data(), content.size()) != 0) {
    const auto differ = std::mismatch(content.begin(), content.end(), image_.begin() + kGuard);
    const auto i = static_cast<std::size_t>(differ.first - content.begin()) / size_of(call.type);
    complain(fmt::format("{} {} is {} instead of {}", what, i,
                         element_text(call.type, image_.data() + kGuard, i),
                         element_text(call.type, content.data(), i)));
  }
  for (std::size_t i = 0; i < kGuard; ++i) {
    if (image_[i] != kPoison) complain(fmt::format("byte {} before the {} was written", kGuard - i, what));
    if (image_[kGuard + content.size() + i] != kPoison)
      complain(fmt::format("byte {} after the {} was written", i, what));
  }
}

Algorithm Workspace::run(const AllReduceCase& call, const Streams& streams) {
  if (call.bytes() > max_bytes_) throw std::logic_error("the workspace is too small for " + call.describe());
  Bytes input(call.bytes());
  streams.input(group_.rank().value, call.start, call.count, input.data());
  std::byte* const out = place(call, true);
  std::byte* const in = call.in_place ? out : place(call, false);
  if (!call.in_place) put(out, Bytes(call.bytes(), kPoison));
  put(in, input);

  const Algorithm used = all_reduce(group_, in, out, call.count, call.type, call.op, memory_->stream(),
                                    {.algorithm = call.algorithm, .timeout = {}});
  group_.synchronize(memory_->stream());

  if (!call.in_place) expect(in, input, call, "input element");
  // Nothing done leaves the output as it was.
  Bytes expected = call.in_place ? std::move(input) : Bytes(call.bytes(), kPoison);
  if (used != Algorithm::none) streams.expected(call.op, call.start, call.count, expected.data());
  expect(out, expected, call, "output element");
  return used;
}

}  // namespace onehop::testing
