// SPDX-License-Identifier: Apache-2.0
#include "library.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/log.h"
#include "base/variables.h"
#include "guard.h"

/// By this symbol a copy of this library recognizes another.
extern "C" __attribute__((visibility("default"))) const char onehop_nccl_marker[] = "onehop";

namespace onehop::nccl {
namespace {

constexpr const char* kName = "libnccl.so.2";
constexpr const char* kLibraryVariable = "ONEHOP_NCCL_LIBRARY";

/// What a user may have meant by ONEHOP_NCCL_LIBRARY: a library, the directory with it, that of Python's nvidia.nccl, or
/// site-packages.
std::vector<std::string> named_candidates(const std::string& named) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(named, ignored)) return {named};
  return {fmt::format("{}/{}", named, kName), fmt::format("{}/lib/{}", named, kName),
          fmt::format("{}/nvidia/nccl/lib/{}", named, kName)};
}

/// Where pip puts NCCL beside the Python packages whose libraries this process has loaded, such as torch.
std::vector<std::string> candidates_of_pip() {
  std::vector<std::string> found;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* list) {
        const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
        for (const std::string_view folder : {"/site-packages/", "/dist-packages/"}) {
          const std::size_t at = path.rfind(folder);
          if (at == std::string_view::npos) continue;
          static_cast<std::vector<std::string>*>(list)->push_back(
              fmt::format("{}nvidia/nccl/lib/{}", path.substr(0, at + folder.size()), kName));
        }
        return 0;
      },
      &found);
  return found;
}

/// The directories where the loader looks for the libraries that `object` needs: LD_LIBRARY_PATH, those that its builder
/// named (RPATH and RUNPATH), and the loader's own. An empty name is the program.
void append_directories(const char* object, std::vector<std::string>& found) {
  void* const handle = ::dlopen(*object != '\0' ? object : nullptr, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return;
  Dl_serinfo size{};
  if (::dlinfo(handle, RTLD_DI_SERINFOSIZE, &size) == 0) {
    std::vector<std::max_align_t> memory(size.dls_size / sizeof(std::max_align_t) + 1);
    auto* const info = reinterpret_cast<Dl_serinfo*>(memory.data());
    if (::dlinfo(handle, RTLD_DI_SERINFOSIZE, info) == 0 && ::dlinfo(handle, RTLD_DI_SERINFO, info) == 0) {
      for (unsigned i = 0; i < info->dls_cnt; ++i)
        found.push_back(fmt::format("{}/{}", info->dls_serpath[i].dls_name, kName));
    }
  }
  ::dlclose(handle);
}

/// Where the loader would look for the program and for the libraries that it has loaded: one of them was built with NCCL.
std::vector<std::string> candidates_of_loader() {
  std::vector<std::string> objects;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* list) {
        static_cast<std::vector<std::string>*>(list)->emplace_back(
            info->dlpi_name != nullptr ? info->dlpi_name : "");
        return 0;
      },
      &objects);
  std::vector<std::string> found;
  for (const std::string& each : objects) append_directories(each.c_str(), found);
  return found;
}

/// What ldconfig found. The cache of the loader contains paths that end with a zero byte. To look for the name with dlopen
/// is no use: the loader has a library of that name already, this one.
std::vector<std::string> candidates_of_cache() {
  std::ifstream file("/etc/ld.so.cache", std::ios::binary);
  const std::string cache{std::istreambuf_iterator<char>(file), {}};
  const std::string wanted = fmt::format("/{}", kName) + '\0';
  std::vector<std::string> found;
  for (std::size_t at = cache.find(wanted); at != std::string::npos; at = cache.find(wanted, at + 1)) {
    const std::size_t begin = cache.rfind('\0', at) + 1;  // npos + 1 is 0
    found.push_back(cache.substr(begin, at + wanted.size() - 1 - begin));
  }
  return found;
}

bool is_this_library(const std::string& path) {
  Dl_info self{};
  struct stat own {
  }, other{};
  return ::dladdr(onehop_nccl_marker, &self) != 0 && ::stat(self.dli_fname, &own) == 0 &&
         ::stat(path.c_str(), &other) == 0 && own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

std::string loader_error(const std::string& path) {
  const char* const reason = ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it per thread
  return reason != nullptr ? reason : path;
}

/// Opens the library, or returns why not.
std::optional<std::string> open(const std::string& path, Library& library) {
  if (is_this_library(path)) return fmt::format("{} is this library", path);
  // Deep binding: the library's calls of its own functions must not come here, where programs' calls come.
  void* const handle = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND);
  if (handle == nullptr) return loader_error(path);
  library.handle = handle;
  auto* const get_version = reinterpret_cast<int (*)(int*)>(library.function("ncclGetVersion"));
  std::optional<std::string> why;
  if (::dlsym(handle, "onehop_nccl_marker") != nullptr) {
    why = fmt::format("{} is a copy of libonehop_nccl", path);
  } else if (get_version == nullptr) {
    why = fmt::format("{} is not NCCL: it has no ncclGetVersion", path);
  }
  if (why) {
    library.handle = nullptr;
    ::dlclose(handle);
    return why;
  }
  library.path = path;
  int code = 0;
  library.version = get_version(&code) == 0
                        ? fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100)
                        : "of unknown version";
  return std::nullopt;
}

void find(Library& library) {
  if (const std::optional<std::string> named = env::get(kLibraryVariable)) {
    for (const std::string& path : named_candidates(*named)) {
      const std::optional<std::string> why = open(path, library);
      if (!why) return;
      // The first reason is the best: the other places only exist if a directory was named.
      if (library.why_not.empty()) library.why_not = fmt::format("{}={}: {}", kLibraryVariable, *named, *why);
    }
    log::warn("no NCCL is used: {}", library.why_not);
    return;
  }
  std::set<std::string> tried;
  for (const auto& candidates : {candidates_of_pip(), candidates_of_loader(), candidates_of_cache()}) {
    for (const std::string& path : candidates) {
      std::error_code ignored;
      if (!tried.insert(path).second || !std::filesystem::exists(path, ignored)) continue;
      const std::optional<std::string> why = open(path, library);
      if (!why) return;
      library.why_not = *why;
    }
  }
  if (library.why_not.empty())
    library.why_not =
        fmt::format("there is no {} beside torch or in the loader's directories; {} can name it", kName,
                    kLibraryVariable);
}

std::string describe(const Library& library) {
  const std::string found =
      library.handle != nullptr ? fmt::format("{} ({})", library.path, library.version) : library.why_not;
  switch (library.mode) {
    case Mode::accelerate:
      return fmt::format("NCCL: carrying communicators of one machine, forwarding others to {}", found);
    case Mode::off:
      return fmt::format("NCCL: ONEHOP_NCCL=off, forwarding everything to {}",
                         library.handle != nullptr ? found : fmt::format("nothing: {}", found));
    case Mode::alone:
      break;
  }
  return fmt::format("NCCL: working alone: {}", found);
}

}  // namespace

void* Library::function(const char* name) const {
  if (handle == nullptr) return nullptr;
  void* const own = ::dlsym(handle, fmt::format("p{}", name).c_str());
  return own != nullptr ? own : ::dlsym(handle, name);
}

void inform(const std::string& line) {
  if (log::enabled(log::Level::info)) {
    log::write(log::Level::info, line);
    return;
  }
  const std::string wanted = env::get("NCCL_DEBUG").value_or("");
  if (wanted == "INFO" || wanted == "TRACE" || wanted == "info" || wanted == "trace")
    fmt::print(stderr, "onehop[{}] {}\n", ::getpid(), line);
}

Result fail_missing(const char* name) noexcept {
  return guarded(name, [&] {
    const Library& real = library();
    return fail(Result::invalid_usage,
                real.handle != nullptr
                    ? fmt::format("{} is missing in NCCL {} ({}): install a newer NCCL, or name it in {}",
                                  name, real.version, real.path, kLibraryVariable)
                    : fmt::format("{} needs NCCL, which is not used ({})", name, real.why_not));
  });
}

const Library& library() {
  // Leaked, since threads may call until the very end of the process.
  static const Library& found = *[] {
    auto* const made = new Library;
    check_environment();
    const std::string wanted = env::get("ONEHOP_NCCL").value_or("auto");
    if (wanted == "alone") {
      made->why_not = "ONEHOP_NCCL=alone";
    } else {
      find(*made);
    }
    made->mode = wanted == "off" ? Mode::off : made->handle != nullptr ? Mode::accelerate : Mode::alone;
    inform(describe(*made));
    return made;
  }();
  return found;
}

}  // namespace onehop::nccl
