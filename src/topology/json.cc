// Topologies as JSON; the format is documented in docs/wire-formats.md ("Topology JSON").
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "onehop/topology.h"

#include "base/check.h"
#include "os/unique_fd.h"

namespace onehop {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::size_t kMaxFileBytes = 4 << 20;
constexpr int kMaxDepth = 8;  ///< the format itself needs 4
constexpr std::size_t kMaxText = 256;
constexpr std::size_t kMaxNoteText = 4096;
constexpr std::size_t kMaxNotes = 256;
constexpr std::size_t kMaxNumaNodes = 256;
constexpr std::size_t kMaxCaches = 4096;
constexpr std::int64_t kMaxCpus = 8192;  ///< the most a Linux kernel can be built for
constexpr std::int64_t kMaxNvlinks = 1024;
constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

constexpr std::array kFabricStates{FabricState::unsupported, FabricState::not_started,
                                   FabricState::in_progress, FabricState::completed};
constexpr std::array kPaths{PciPath::self, PciPath::pix, PciPath::pxb,    PciPath::phb,
                            PciPath::node, PciPath::sys, PciPath::unknown};

// ---------------------------------------------------------------------------------------------- reading

/// A JSON value together with where it stands, so that every complaint names its field.
class Field {
 public:
  Field(const Json& value, std::string path, std::string_view source)
      : value_(&value), path_(std::move(path)), source_(source) {}

  template <class... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::protocol, "{}: {}: {}", source_, path_.empty() ? "top level" : path_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  /// A member of this object: the required form complains when it is missing.
  [[nodiscard]] std::optional<Field> find(const char* key) const {
    if (!value_->is_object()) wrong("must be an object, got {}", describe());
    const auto it = value_->find(key);
    if (it == value_->end()) return std::nullopt;
    return Field(*it, path_.empty() ? key : fmt::format("{}.{}", path_, key), source_);
  }
  [[nodiscard]] Field at(const char* key) const {
    std::optional<Field> field = find(key);
    if (!field) wrong("the field '{}' is missing", key);
    return *std::move(field);
  }

  /// Calls `visit(Field element, std::size_t index)` for each element of this array.
  template <class Visit>
  void each(std::size_t limit, Visit&& visit) const {
    const std::size_t count = length();
    if (count > limit) wrong("has {} elements, more than the limit of {}", count, limit);
    for (std::size_t i = 0; i < count; ++i)
      visit(Field((*value_)[i], fmt::format("{}[{}]", path_, i), source_), i);
  }
  [[nodiscard]] std::size_t length() const {
    if (!value_->is_array()) wrong("must be an array, got {}", describe());
    return value_->size();
  }

  [[nodiscard]] std::int64_t integer(std::int64_t lowest, std::int64_t highest) const {
    const bool big = value_->is_number_unsigned() && value_->get<std::uint64_t>() > std::uint64_t{1} << 62;
    const std::int64_t value = value_->is_number_integer() && !big ? value_->get<std::int64_t>() : lowest;
    if (!value_->is_number_integer() || big || value < lowest || value > highest) {
      wrong("must be an integer from {} to {}, got {}", lowest, highest, describe());
    }
    return value;
  }
  [[nodiscard]] int small(std::int64_t lowest, std::int64_t highest) const {
    return static_cast<int>(integer(lowest, highest));
  }
  [[nodiscard]] std::uint64_t bytes() const {
    if (!value_->is_number_unsigned()) wrong("must be a number of bytes, got {}", describe());
    return value_->get<std::uint64_t>();
  }
  [[nodiscard]] bool flag() const {
    if (!value_->is_boolean()) wrong("must be true or false, got {}", describe());
    return value_->get<bool>();
  }
  /// Printable text: control characters would let a file write escape sequences to a terminal.
  [[nodiscard]] std::string text(std::size_t limit = kMaxText) const {
    if (!value_->is_string()) wrong("must be a string, got {}", describe());
    const auto& text = value_->get_ref<const std::string&>();
    if (text.size() > limit) wrong("has {} bytes, more than the limit of {}", text.size(), limit);
    const bool control =
        std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
    // U+0080..U+009F, the C1 controls, are 0xc2 0x80..0x9f in UTF-8.
    bool c1 = false;
    for (std::size_t i = 0; i + 1 < text.size(); ++i) {
      const auto next = static_cast<unsigned char>(text[i + 1]);
      c1 = c1 || (static_cast<unsigned char>(text[i]) == 0xc2 && next < 0xa0);
    }
    if (control || c1) wrong("holds a control character");
    return text;
  }
  template <class Enum, std::size_t N>
  [[nodiscard]] Enum one_of(const std::array<Enum, N>& values) const {
    std::string known;
    for (const Enum value : values) {
      if (value_->is_string() && value_->get_ref<const std::string&>() == to_string(value)) return value;
      known += fmt::format("{}{}", known.empty() ? "" : " ", to_string(value));
    }
    wrong("must be one of {}, got {}", known, describe());
  }

 private:
  /// The offending value, short enough for one line; only scalars are shown.
  [[nodiscard]] std::string describe() const {
    if (value_->is_structured()) return value_->is_array() ? "an array" : "an object";
    std::string text = value_->dump(-1, ' ', /*ensure_ascii=*/true);
    if (text.size() > 40) text = text.substr(0, 37) + "...";
    return text;
  }

  const Json* value_;
  std::string path_;
  std::string_view source_;
};

std::vector<int> read_cpus(const Field& array) {
  std::vector<int> cpus;
  array.each(kMaxCpus, [&](const Field& field, std::size_t) {
    const int cpu = field.small(0, kMaxCpus);
    if (!cpus.empty() && cpu <= cpus.back())
      field.wrong("must be above {}, the one before it, got {}", cpus.back(), cpu);
    cpus.push_back(cpu);
  });
  return cpus;
}

HostInfo read_host(const Field& object) {
  HostInfo host;
  if (const auto field = object.find("hostname")) host.hostname = field->text();
  if (const auto field = object.find("cpu_model")) host.cpu_model = field->text();
  if (const auto field = object.find("cores")) host.cores = field->small(0, kMaxCpus);
  if (const auto field = object.find("cpus")) host.cpus = field->small(0, kMaxCpus);
  if (const auto nodes = object.find("numa_nodes")) {
    std::set<int> ids;
    nodes->each(kMaxNumaNodes, [&](const Field& field, std::size_t) {
      NumaNode node;
      node.id = field.at("id").small(0, kMaxInt);
      if (!ids.insert(node.id).second) field.at("id").wrong("{} is already the id of another node", node.id);
      if (const auto bytes = field.find("memory_bytes")) node.memory_bytes = bytes->bytes();
      if (const auto cpus = field.find("cpus")) node.cpus = read_cpus(*cpus);
      host.numa_nodes.push_back(std::move(node));
    });
  }
  if (const auto caches = object.find("caches")) {
    caches->each(kMaxCaches, [&](const Field& field, std::size_t) {
      CacheInfo cache;
      cache.level = field.at("level").small(1, 9);
      if (const auto bytes = field.find("bytes")) cache.bytes = bytes->bytes();
      if (const auto cpus = field.find("cpus")) cache.cpus = read_cpus(*cpus);
      host.caches.push_back(std::move(cache));
    });
  }
  return host;
}

/// "00000000:19:00.0": domain, bus, device in lower-case hexadecimal; function.
bool is_bus_id(std::string_view text) {
  constexpr std::string_view kPattern = "xxxxxxxx:xx:xx.x";
  if (text.size() != kPattern.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool hex = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
    if (kPattern[i] == 'x' ? !hex : text[i] != kPattern[i]) return false;
  }
  return true;
}

DeviceInfo read_device(const Field& object) {
  DeviceInfo device;
  const Field uuid = object.at("uuid");
  device.uuid = uuid.text();
  if (device.uuid.empty()) uuid.wrong("must not be empty: it is what identifies a device");
  if (const auto field = object.find("name")) device.name = field->text();
  if (const auto field = object.find("pci_bus_id")) {
    device.pci_bus_id = field->text();
    if (!device.pci_bus_id.empty() && !is_bus_id(device.pci_bus_id)) {
      field->wrong("must look like 00000000:19:00.0 in lower case, got '{}'", device.pci_bus_id);
    }
  }
  if (const auto field = object.find("numa_node")) device.numa_node = field->small(-1, kMaxInt);
  if (const auto field = object.find("compute_capability")) device.compute_capability = field->small(0, 9999);
  if (const auto field = object.find("memory_bytes")) device.memory_bytes = field->bytes();
  if (const auto field = object.find("fabric")) device.fabric = field->one_of(kFabricStates);
  if (const auto field = object.find("fabric_cluster")) device.fabric_cluster = field->text();
  if (const auto field = object.find("fabric_clique")) {
    device.fabric_clique =
        static_cast<std::uint32_t>(field->integer(0, std::numeric_limits<std::uint32_t>::max()));
  }
  if (const auto field = object.find("fabric_handles")) device.fabric_handles = field->flag();
  if (const auto field = object.find("fabric_note")) device.fabric_note = field->text(kMaxNoteText);
  if (const auto field = object.find("multicast_supported")) device.multicast_supported = field->flag();
  return device;
}

std::vector<DeviceInfo> read_devices(const Field& array) {
  std::vector<DeviceInfo> devices;
  array.each(kMaxTopologyDevices, [&](const Field& field, std::size_t) {
    DeviceInfo device = read_device(field);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (devices[i].uuid == device.uuid) {
        field.at("uuid").wrong("'{}' is already the uuid of devices[{}]", device.uuid, i);
      }
    }
    devices.push_back(std::move(device));
  });
  return devices;
}

/// Calls `visit(Field element, DeviceId row, DeviceId column)` over a devices x devices matrix.
template <class Visit>
void each_pair(const Field& matrix, int devices, Visit&& visit) {
  const auto check_length = [&](const Field& array) {
    if (array.length() != static_cast<std::size_t>(devices)) {
      array.wrong("has {} elements but there are {} devices", array.length(), devices);
    }
  };
  check_length(matrix);
  matrix.each(kMaxTopologyDevices, [&](const Field& row, std::size_t from) {
    check_length(row);
    row.each(kMaxTopologyDevices, [&](const Field& field, std::size_t to) {
      visit(field, DeviceId{static_cast<int>(from)}, DeviceId{static_cast<int>(to)});
    });
  });
}

void read_pairs(const Field& object, Topology& topology) {
  const auto read = [&](const char* key, auto&& assign) {
    const auto matrix = object.find(key);
    if (!matrix) return;
    each_pair(*matrix, topology.device_count(), [&](const Field& field, DeviceId from, DeviceId to) {
      PairInfo pair = topology.pair(from, to);
      assign(pair, field);
      if ((pair.path == PciPath::self) != (from == to)) {
        field.wrong("must be \"self\" on the diagonal and only there, got \"{}\"", to_string(pair.path));
      }
      topology.set_pair(from, to, pair);
    });
  };
  read("nvlinks", [](PairInfo& pair, const Field& field) { pair.nvlinks = field.small(0, kMaxNvlinks); });
  read("path", [](PairInfo& pair, const Field& field) { pair.path = field.one_of(kPaths); });
  read("peer_access", [](PairInfo& pair, const Field& field) { pair.peer_access = field.flag(); });
  read("native_atomics", [](PairInfo& pair, const Field& field) { pair.native_atomics = field.flag(); });
  read("array_access", [](PairInfo& pair, const Field& field) { pair.array_access = field.flag(); });
  read("performance_rank",
       [](PairInfo& pair, const Field& field) { pair.performance_rank = field.small(-1, kMaxInt); });
}

Json parse_text(std::string_view text, std::string_view source) {
  if (text.size() > kMaxFileBytes) {
    fail(ErrorCode::protocol, "{}: {} bytes, more than the limit of {}", source, text.size(), kMaxFileBytes);
  }
  // Brackets without end would otherwise cost fifty times their size in memory before they are refused.
  const auto limit_depth = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth) fail(ErrorCode::protocol, "{}: nested deeper than {} levels", source, kMaxDepth);
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), limit_depth);
  } catch (const Json::parse_error& e) {
    // The parser's own text may quote raw bytes of the input; the position says as much.
    const std::size_t at = std::min(e.byte > 0 ? e.byte - 1 : 0, text.size());
    const std::string_view before = text.substr(0, at);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t column = at - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0: the first line
    fail(ErrorCode::protocol, "{}: not valid JSON at line {}, column {}{}", source, line, column,
         at >= text.size() ? ": it ends too early" : "");
  } catch (const Json::exception&) {
    fail(ErrorCode::protocol, "{}: holds a number that no field can hold", source);
  }
}

Topology parse(std::string_view text, std::string_view source) {
  const Json document = parse_text(text, source);
  const Field root(document, "", source);
  const Field version = root.at("onehop_topology");
  const std::int64_t number = version.integer(1, kMaxInt);
  if (number != kVersion) {
    version.wrong("version {} is not known to this build, which reads version {}", number, kVersion);
  }
  HostInfo host;
  std::vector<DeviceInfo> devices;
  if (const auto field = root.find("host")) host = read_host(*field);
  if (const auto field = root.find("devices")) devices = read_devices(*field);
  Topology topology(std::move(host), std::move(devices));
  if (const auto field = root.find("pairs")) read_pairs(*field, topology);
  if (const auto field = root.find("notes")) {
    field->each(kMaxNotes,
                [&](const Field& note, std::size_t) { topology.add_note(note.text(kMaxNoteText)); });
  }
  return topology;
}

// ---------------------------------------------------------------------------------------------- writing

Json host_json(const HostInfo& host) {
  Json nodes = Json::array();
  for (const NumaNode& node : host.numa_nodes) {
    nodes.push_back({{"id", node.id}, {"memory_bytes", node.memory_bytes}, {"cpus", node.cpus}});
  }
  Json caches = Json::array();
  for (const CacheInfo& cache : host.caches) {
    caches.push_back({{"level", cache.level}, {"bytes", cache.bytes}, {"cpus", cache.cpus}});
  }
  return {{"hostname", host.hostname}, {"cpu_model", host.cpu_model},    {"cores", host.cores},
          {"cpus", host.cpus},         {"numa_nodes", std::move(nodes)}, {"caches", std::move(caches)}};
}

Json device_json(const DeviceInfo& device) {
  return {{"uuid", device.uuid},
          {"name", device.name},
          {"pci_bus_id", device.pci_bus_id},
          {"numa_node", device.numa_node},
          {"compute_capability", device.compute_capability},
          {"memory_bytes", device.memory_bytes},
          {"fabric", to_string(device.fabric)},
          {"fabric_cluster", device.fabric_cluster},
          {"fabric_clique", device.fabric_clique},
          {"fabric_handles", device.fabric_handles},
          {"fabric_note", device.fabric_note},
          {"multicast_supported", device.multicast_supported}};
}

Json pairs_json(const Topology& topology) {
  const auto matrix = [&](auto&& get) {
    Json rows = Json::array();
    for (int from = 0; from < topology.device_count(); ++from) {
      Json row = Json::array();
      for (int to = 0; to < topology.device_count(); ++to) {
        row.push_back(get(topology.pair(DeviceId{from}, DeviceId{to})));
      }
      rows.push_back(std::move(row));
    }
    return rows;
  };
  return {{"nvlinks", matrix([](const PairInfo& p) { return p.nvlinks; })},
          {"path", matrix([](const PairInfo& p) { return to_string(p.path); })},
          {"peer_access", matrix([](const PairInfo& p) { return p.peer_access; })},
          {"native_atomics", matrix([](const PairInfo& p) { return p.native_atomics; })},
          {"array_access", matrix([](const PairInfo& p) { return p.array_access; })},
          {"performance_rank", matrix([](const PairInfo& p) { return p.performance_rank; })}};
}

/// A scalar's text; names and notes of foreign origin may hold bytes that are not UTF-8, which JSON cannot.
std::string scalar(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// On one line whatever it is: {"level": 1, "cpus": [0, 16]}.
std::string one_line(const Json& value) {
  if (!value.is_structured()) return scalar(value);
  std::string out;
  for (const auto& item : value.items()) {
    if (!out.empty()) out += ", ";
    if (value.is_object()) out += scalar(item.key()) + ": ";
    out += one_line(item.value());
  }
  return value.is_object() ? '{' + out + '}' : '[' + out + ']';
}

bool has_structured(const Json& value) {
  return std::any_of(value.begin(), value.end(), [](const Json& v) { return v.is_structured(); });
}

/// Indented, but with lists of numbers, matrix rows and short objects on one line: a matrix shall look like
/// one.
void write(const Json& value, std::size_t indent, bool in_array, std::string& out) {
  const bool object = value.is_object();
  if (!value.is_structured()) {
    out += scalar(value);
    return;
  }
  const bool has_lists_only = std::none_of(value.begin(), value.end(), has_structured);
  if (object ? has_lists_only : !has_structured(value)) {
    const std::string line = one_line(value);
    const bool row = !object && (in_array || (!value.empty() && value.front().is_number()));
    if (row || indent + line.size() <= 100) {
      out += line;
      return;
    }
  }
  const std::string margin(indent + 2, ' ');
  out += object ? '{' : '[';
  bool first = true;
  for (const auto& item : value.items()) {
    out += first ? "\n" : ",\n";
    first = false;
    out += margin;
    if (object) out += scalar(item.key()) + ": ";
    write(item.value(), indent + 2, !object, out);
  }
  out += fmt::format("\n{:{}}{}", "", indent, object ? '}' : ']');
}

}  // namespace

Topology Topology::from_json(std::string_view json) {
  return parse(json, "topology JSON");
}

Topology Topology::load(const std::string& path) {
  const std::string what = fmt::format("topology file '{}'", path);
  // O_NONBLOCK: a named pipe without a writer would block here for ever instead of being refused below.
  const os::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) {
    if (errno == ENOENT) fail(ErrorCode::not_found, "{} does not exist", what);
    fail_errno(errno, fmt::format("{} cannot be opened", what));
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_errno(errno, fmt::format("{} cannot be examined", what));
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorCode::invalid_argument, "{} is {}", what,
         S_ISDIR(status.st_mode) ? "a directory" : "not a regular file");
  }
  std::string text(kMaxFileBytes + 1, '\0');  // one more than allowed, so that too large shows
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(errno, fmt::format("{} cannot be read", what));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > kMaxFileBytes)
    fail(ErrorCode::protocol, "{}: more than the limit of {} bytes", what, kMaxFileBytes);
  text.resize(size);
  return parse(text, what);
}

std::string Topology::to_json() const {
  const Json document = {{"onehop_topology", kVersion},
                         {"host", host_json(host_)},
                         {"devices",
                          [&] {
                            Json devices = Json::array();
                            for (const DeviceInfo& device : devices_) devices.push_back(device_json(device));
                            return devices;
                          }()},
                         {"pairs", pairs_json(*this)},
                         {"notes", notes_}};
  std::string out;
  write(document, 0, false, out);
  out += '\n';
  return out;
}

}  // namespace onehop
