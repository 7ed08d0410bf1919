#include "onehop/group.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <thread>

#include "base/env.h"
#include "base/wire.h"
#include "group/environment.h"
#include "group/process.h"
#include "group/rendezvous.h"
#include "group/state.h"
#include "os/fault_point.h"
#include "os/fork_guard.h"
#include "os/host_id.h"
#include "os/mapping.h"

namespace onehop {
namespace {

constexpr std::string_view kAlgorithmNames[] = {"none", "one-shot", "two-shot"};
static_assert(std::size(kAlgorithmNames) == kAlgorithmCount);

constexpr std::size_t kDefaultHostScratch = 10 << 20;
constexpr std::size_t kDefaultDeviceScratch = 16 << 20;

// Far beyond any machine's memory, and far from overflowing.
constexpr std::size_t kMaxBlockBytes = std::size_t{1} << 47;

/// What a rank tells the others about memory it has allocated for them.
struct BlockNotice {
  Status status;
  os::Id process{};  ///< ranks of one process share one mapping
  std::uint64_t bytes = 0;
  std::uint64_t offer = 0;  ///< number of the LocalOffer, for ranks of the same process
};

std::string encode(const BlockNotice& notice) {
  wire::Writer out;
  out.put_bytes(onehop::encode(notice.status));
  out.put_raw({reinterpret_cast<const char*>(notice.process.data()), notice.process.size()});
  out.put(notice.bytes).put(notice.offer);
  return std::move(out).str();
}

BlockNotice parse_block_notice(std::string_view bytes) {
  wire::Reader in(bytes, "allocation notice");
  BlockNotice notice;
  notice.status = parse_status(in.get_bytes(kMaxPayload));
  const std::string_view id = in.get_raw(notice.process.size());
  std::copy(id.begin(), id.end(), notice.process.begin());
  notice.bytes = in.get<std::uint64_t>();
  notice.offer = in.get<std::uint64_t>();
  in.finish();
  return notice;
}

/// What must hold before this rank can say anything to the others.
void require_place(const JoinOptions& options) {
  require(options.size >= 1 && options.rank.value >= 0 && options.rank.value < options.size,
          "rank {} of a group of {}: ranks count from 0 to size - 1", options.rank.value, options.size);
  require(!options.name.empty() && options.name.size() <= 128 && options.name.find('/') == std::string::npos,
          "group name '{}' must have 1 to 128 characters and no '/'", options.name);
}

/// Checks the rest of the options and finds out what identifies the device across processes. Runs where a
/// failure reaches the other ranks.
std::string prepare(JoinOptions& options) {
  if (options.scratch_bytes == 0) {
    options.scratch_bytes = options.device.is_host() ? kDefaultHostScratch : kDefaultDeviceScratch;
  }
  require(options.scratch_bytes >= (64 << 10) && options.scratch_bytes <= (std::size_t{1} << 40),
          "scratch_bytes {} is not within 64 KiB..1 TiB", options.scratch_bytes);
  options.allow_overlapping_devices =
      options.allow_overlapping_devices || env::get_flag("ONEHOP_ALLOW_OVERLAPPING_DEVICES");
  return options.device.is_host() ? "host" : identify_device(options.device);
}

/// Runs body(0) to body(n - 1) on n threads; throws what the first of them threw that threw anything.
void run_together(std::size_t n, const std::function<void(std::size_t)>& body) {
  std::vector<std::exception_ptr> errors(n);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < n; ++i) {
    threads.emplace_back([&, i] {
      try {
        body(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

}  // namespace

std::string_view to_string(Algorithm algorithm) {
  const auto index = static_cast<std::size_t>(algorithm);
  return index < std::size(kAlgorithmNames) ? kAlgorithmNames[index] : "unknown";
}

Algorithm parse_algorithm(std::string_view name) {
  for (std::size_t i = 1; i < std::size(kAlgorithmNames); ++i) {
    if (name == kAlgorithmNames[i]) return static_cast<Algorithm>(i);
  }
  fail(ErrorCode::invalid_argument, "unknown algorithm '{}'; known: one-shot two-shot", name);
}

// --- State ---

Group::State::State(JoinOptions options, std::string id, std::shared_ptr<IpcChannel::Mesh> mesh,
                    const Deadline& deadline)
    : options_(std::move(options)),
      id_(std::move(id)),
      mesh_(std::move(mesh)),
      channel_(mesh_),
      host_memory_(make_host_backend()) {
  // A group of GPUs has no data on the host: there its team only meets.
  const std::size_t staging = options_.device.is_host() ? options_.scratch_bytes : os::page_size();
  segments_ = exchange_blocks(*host_memory_, staging, sizeof(host::SegmentHeader), deadline, "joining");
  std::vector<host::Team::Member> members;
  for (const std::shared_ptr<Block>& segment : segments_) {
    members.push_back({.header = reinterpret_cast<host::SegmentHeader*>(segment->data()),
                       .staging = segment->data() + sizeof(host::SegmentHeader)});
  }
  team_ = host::Team(rank().value, std::move(members), staging, os::usable_cpus());
  if (!options_.device.is_host()) start_device(deadline);
}

bool Group::State::share_out_devices(const Deadline& deadline) {
  struct Device {
    char identity[40] = {};
    std::int32_t multiprocessors = 0;
  };
  Device own;
  identify_device(options_.device).copy(own.identity, sizeof own.identity);
  own.multiprocessors = multiprocessors(options_.device);
  std::vector<Device> devices;
  for (const std::string& raw :
       mesh_->all_gather({reinterpret_cast<const char*>(&own), sizeof own}, deadline, "joining")) {
    std::memcpy(&devices.emplace_back(), raw.data(), std::min(raw.size(), sizeof(Device)));
  }
  const auto users = [&](const Device& device) {
    return static_cast<int>(std::count_if(devices.begin(), devices.end(), [&](const Device& other) {
      return std::memcmp(other.identity, device.identity, sizeof device.identity) == 0;
    }));
  };
  resident_blocks_ = INT_MAX;
  for (const Device& device : devices) {
    resident_blocks_ = std::min(resident_blocks_, std::max(1, device.multiprocessors / users(device)));
  }
  return users(own) == 1;
}

void Group::State::start_device(const Deadline& deadline) {
  checks_calls_ = env::get_flag("ONEHOP_CHECK");
  const bool alone = share_out_devices(deadline);
  device_memory_ = make_cuda_backend(options_.device, deadline.left());
  device_segments_ = exchange_blocks(
      *device_memory_, DeviceTeam::segment_bytes(size(), options_.scratch_bytes), 0, deadline, "joining");
  Status status;
  try {
    std::vector<std::byte*> segments;
    for (const std::shared_ptr<Block>& segment : device_segments_) segments.push_back(segment->data());
    device_ = DeviceTeam::create({.device = options_.device,
                                  .rank = rank().value,
                                  .segments = std::move(segments),
                                  .staging_bytes = options_.scratch_bytes,
                                  .timeout = options_.timeout,
                                  .alone = alone});
    watch_ = std::make_unique<DeviceWatch>(mesh_, *device_, options_.timeout);
  } catch (const Error& error) {
    status = Status::of(error, rank());
  } catch (const std::exception& other) {
    status = {ErrorCode::out_of_resources, rank(), other.what()};
  }
  agree(status, deadline, "joining");
}

Group::State::~State() {
  leave();
  if (device_ != nullptr && generation_ != os::fork_generation()) {
    // The child of a fork: the driver does not work here, and what it would release is the parent's.
    (void)watch_.release();
    (void)device_.release();
  }
}

void Group::State::leave() noexcept {
  // First the work under way, watched to its end: peers count on it, and its end may need their failure.
  if (device_ != nullptr && !mesh_->left() && generation_ == os::fork_generation()) device_->quiesce();
  mesh_->leave();
}

void Group::State::synchronize(Stream stream, Duration timeout) {
  if (watch_ == nullptr) return mesh_->check("synchronize");
  watch_->synchronize(stream, timeout);
}

void Group::State::throw_timeout(Rank awaited, Duration timeout, const char* phase) const {
  fail_from(awaited, ErrorCode::timeout, "{}: rank {} waited {} ms for rank {}", phase, rank().value,
            timeout.count(), awaited.value);
}

void Group::State::fail_call(const Error& error, const char* phase) {
  if (!error.origin().none()) {
    mesh_->fail_group(error);
    throw error;
  }
  const Error named(error.code(), fmt::format("{}: rank {}: {}", phase, rank().value, error.message()),
                    rank());
  mesh_->fail_group(named);
  throw named;
}

void Group::State::agree(const Status& own, const Deadline& deadline, const char* phase) {
  for (const std::string& raw : mesh_->all_gather(encode(own), deadline, phase))
    parse_status(raw).throw_if_failed();
}

std::vector<std::shared_ptr<Block>> Group::State::exchange_blocks(const MemoryBackend& backend,
                                                                  std::size_t bytes, std::size_t extra,
                                                                  const Deadline& deadline,
                                                                  const char* phase) {
  Allocation own;
  LocalOffer offer;  // stands until everyone has agreed below
  BlockNotice notice;
  notice.process = process_id();
  notice.bytes = bytes;
  const auto attempt = [&](auto&& step) {
    try {
      step();
    } catch (const Error& error) {
      notice.status = Status::of(error, rank());
      notice.status.message = fmt::format("{}: rank {}: {}", phase, rank().value, error.message());
    } catch (const std::bad_alloc&) {
      notice.status = {.code = ErrorCode::out_of_resources,
                       .origin = rank(),
                       .message = fmt::format("{}: rank {}: out of memory", phase, rank().value)};
    }
  };
  attempt([&] {
    os::fault_point("allocate", rank().value);
    require(bytes > 0 && bytes <= kMaxBlockBytes, "cannot allocate {} bytes of symmetric memory", bytes);
    own = backend.create(bytes + extra);
    offer = LocalOffer(own.block);
    notice.offer = offer.number();
  });

  std::vector<BlockNotice> notices;
  for (const std::string& raw : mesh_->all_gather(encode(notice), deadline, phase)) {
    notices.push_back(parse_block_notice(raw));
  }
  for (const BlockNotice& each : notices) each.status.throw_if_failed();
  for (std::size_t r = 1; r < notices.size(); ++r) {
    if (notices[r].bytes == notices[0].bytes) continue;
    fail_from(Rank{static_cast<int>(r)}, ErrorCode::mismatch, "{}: rank 0 asks for {} bytes, rank {} for {}",
              phase, notices[0].bytes, r, notices[r].bytes);
  }

  const bool one_process = std::all_of(notices.begin(), notices.end(), [&](const BlockNotice& each) {
    return each.process == notices[0].process;
  });
  std::vector<os::UniqueFd> handles;
  if (!one_process) handles = mesh_->all_gather_fds(own.handle.get(), deadline);

  std::vector<std::shared_ptr<Block>> blocks(notices.size());
  attempt([&] {
    os::fault_point("map", rank().value);
    for (std::size_t r = 0; r < blocks.size(); ++r) {
      if (static_cast<int>(r) == rank().value) {
        blocks[r] = own.block;
      } else if (notices[r].process != notice.process) {
        blocks[r] = backend.import(std::move(handles[r]), bytes + extra);
      } else if (blocks[r] = LocalOffer::take(notices[r].offer);
                 blocks[r] == nullptr || blocks[r]->bytes() != own.block->bytes()) {
        fail_from(Rank{static_cast<int>(r)}, ErrorCode::peer_lost,
                  "rank {} gave up before its memory was mapped", r);
      } else {
        backend.adopt(*blocks[r]);
      }
    }
  });
  agree(notice.status, deadline, phase);
  return blocks;
}

SymmetricBuffer Group::State::allocate(std::size_t bytes) {
  return call("allocate", [&] {
    const Deadline deadline = Deadline::after(options_.timeout);
    const std::size_t pad = SymmetricBuffer::State::pad_bytes(size());
    SymmetricBuffer::State::Blocks blocks;
    SymmetricBuffer::State::Blocks pads;
    if (device_ != nullptr) {
      blocks = exchange_blocks(*device_memory_, bytes, SymmetricBuffer::State::device_pad_bytes(), deadline,
                               "allocate");
      pads = exchange_blocks(*host_memory_, pad, 0, deadline, "allocate");
    } else {
      blocks = exchange_blocks(*host_memory_, bytes, pad, deadline, "allocate");
      pads = blocks;
    }
    auto state = std::make_shared<SymmetricBuffer::State>(shared_from_this(), std::move(blocks),
                                                          std::move(pads), bytes);
    std::erase_if(buffers_, [](const BufferRange& range) { return range.state.expired(); });
    buffers_.push_back({.number = ++allocations_,
                        .data = state->data[static_cast<std::size_t>(rank().value)],
                        .bytes = bytes,
                        .state = state});
    return SymmetricBuffer(std::move(state));
  });
}

std::pair<std::shared_ptr<SymmetricBuffer::State>, std::uint64_t> Group::State::find_buffer(
    const void* data, std::size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(data);
  for (const BufferRange& range : buffers_) {
    if (first < range.data || first >= range.data + range.bytes) continue;
    if (bytes > static_cast<std::size_t>(range.data + range.bytes - first)) continue;
    // Expired: the memory was freed and its addresses may be anyone's now.
    if (std::shared_ptr<SymmetricBuffer::State> state = range.state.lock())
      return {std::move(state), range.number};
  }
  return {nullptr, 0};
}

std::array<std::uint64_t, kAlgorithmCount> Group::State::usage() const {
  std::array<std::uint64_t, kAlgorithmCount> counts{};
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = usage_[i].load(std::memory_order_relaxed);
  return counts;
}

// --- Group ---

Group::Group(std::shared_ptr<State> state) : state_(std::move(state)) {}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&& other) noexcept {
  if (this != &other) {
    leave();
    state_ = std::move(other.state_);
  }
  return *this;
}
Group::~Group() {
  leave();
}

Group Group::join(std::shared_ptr<Store> store, JoinOptions options) {
  require(store != nullptr, "Group::join needs a store");
  require_place(options);
  const Deadline deadline = Deadline::after(options.timeout);
  Rendezvous met = rendezvous(
      *store, options, [&] { return prepare(options); }, deadline);
  return Group(
      std::make_shared<State>(std::move(options), os::to_hex(met.id), std::move(met.mesh), deadline));
}

std::vector<Group> Group::join_local(const std::vector<DeviceId>& devices, JoinOptions defaults) {
  const std::shared_ptr<Store> store = memory_store();
  std::vector<std::optional<Group>> joined(devices.size());
  run_together(devices.size(), [&](std::size_t r) {
    JoinOptions options = defaults;
    options.rank = Rank{static_cast<int>(r)};
    options.size = static_cast<int>(devices.size());
    options.device = devices[r];
    joined[r] = join(store, std::move(options));
  });
  std::vector<Group> groups;
  for (std::optional<Group>& each : joined) groups.push_back(*std::move(each));
  return groups;
}

void on_every_rank(std::vector<Group>& groups, const std::function<void(Group&)>& body) {
  run_together(groups.size(), [&](std::size_t r) { body(groups[r]); });
}

Group Group::from_env(JoinOptions defaults) {
  const Environment environment = read_environment(env::get);
  defaults.rank = Rank{environment.rank};
  defaults.size = environment.size;
  return join(open_store(environment), std::move(defaults));
}

Group::State& Group::state() const {
  require(state_ != nullptr, "this group was moved from");
  return *state_;
}

Rank Group::rank() const {
  return state().rank();
}
int Group::size() const {
  return state().size();
}
DeviceId Group::device() const {
  return state().options().device;
}
const std::string& Group::id() const {
  return state().id();
}
const std::string& Group::name() const {
  return state().options().name;
}
Duration Group::timeout() const {
  return state().options().timeout;
}
SymmetricBuffer Group::allocate(std::size_t bytes) {
  return state().allocate(bytes);
}
IpcChannel& Group::channel() {
  return state().channel();
}
std::array<std::uint64_t, kAlgorithmCount> Group::usage() const {
  return state().usage();
}
void Group::check() const {
  state().mesh().check("check");
}

void Group::synchronize(Stream stream) {
  state().synchronize(stream, timeout());
}
void Group::synchronize(Stream stream, Duration timeout) {
  state().synchronize(stream, timeout);
}

std::vector<std::string> Group::all_gather(std::string_view payload) {
  State& self = state();
  return self.call("all_gather", [&] {
    return self.mesh().all_gather(payload, Deadline::after(self.options().timeout), "all_gather");
  });
}

void Group::abort(std::string_view reason) noexcept {
  if (state_ == nullptr) return;
  try {
    state_->mesh().fail_group(Error(
        ErrorCode::aborted, fmt::format("rank {} aborted the group: {}", rank().value, reason), rank()));
  } catch (const std::exception&) {
    // Out of memory for the message: leaving ends the others' waits as well.
    state_->leave();
  }
}

void Group::leave() noexcept {
  if (state_ != nullptr) state_->leave();
}

std::optional<Group> Group::split(int color, int key) {
  State& parent = state();
  struct Choice {
    std::int32_t color;
    std::int32_t key;
    os::Id id;
  };
  return parent.call("split", [&]() -> std::optional<Group> {
    const Deadline deadline = Deadline::after(parent.options().timeout);
    IpcChannel::Mesh& mesh = parent.mesh();
    const Choice own{.color = color, .key = key, .id = os::random_id()};
    std::vector<Choice> choices;
    for (const std::string& raw :
         mesh.all_gather({reinterpret_cast<const char*>(&own), sizeof own}, deadline, "split")) {
      if (raw.size() != sizeof(Choice)) fail(ErrorCode::protocol, "split: a rank sent {} bytes", raw.size());
      std::memcpy(&choices.emplace_back(), raw.data(), sizeof(Choice));
    }

    // Every rank sees all choices, so a colour nobody can form a group of is refused by all alike.
    for (std::size_t r = 0; r < choices.size(); ++r) {
      const auto same = std::count_if(choices.begin(), choices.end(),
                                      [&](const Choice& other) { return other.color == choices[r].color; });
      if (choices[r].color >= 0 && same < 2) {
        fail_from(Rank{static_cast<int>(r)}, ErrorCode::refused,
                  "split: rank {} is alone with colour {}; a group needs 2 ranks", r, choices[r].color);
      }
    }

    std::vector<int> members;  // parent ranks, in the order of their new ranks
    for (std::size_t r = 0; r < choices.size(); ++r) {
      if (color >= 0 && choices[r].color == color) members.push_back(static_cast<int>(r));
    }
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
      return choices[static_cast<std::size_t>(a)].key < choices[static_cast<std::size_t>(b)].key;
    });

    // New sockets travel over the old ones: no store, no files. The lower parent rank of each pair makes
    // them.
    const int self = parent.rank().value;
    std::vector<os::UniqueFd> sockets(members.size());
    Status status;
    try {
      for (std::size_t i = 0; i < members.size(); ++i) {
        if (members[i] <= self) continue;
        auto [mine, theirs] = os::socket_pair();
        mesh.send_fd(Rank{members[i]}, theirs.get(), deadline);
        sockets[i] = std::move(mine);
      }
      for (std::size_t i = 0; i < members.size(); ++i) {
        if (members[i] < self) sockets[i] = mesh.recv_fd(Rank{members[i]}, deadline);
      }
    } catch (const Error& error) {
      status = Status::of(error, parent.rank());
    }
    parent.agree(status, deadline, "split");
    if (members.empty()) return std::nullopt;

    JoinOptions options = parent.options();
    options.size = static_cast<int>(members.size());
    options.rank = Rank{static_cast<int>(std::find(members.begin(), members.end(), self) - members.begin())};
    options.name += fmt::format(".{}", color);
    auto sub = std::make_shared<IpcChannel::Mesh>(options.rank, options.size, std::move(sockets));
    const os::Id& id = choices[static_cast<std::size_t>(members.front())].id;
    return Group(std::make_shared<State>(std::move(options), os::to_hex(id), std::move(sub), deadline));
  });
}

}  // namespace onehop
