// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/env.h"
#include "base/units.h"
#include "commands.h"
#include "os/unique_fd.h"

namespace onehop::cli {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

constexpr std::array kEndings = {SIGINT, SIGTERM, SIGHUP};
constexpr std::size_t kMaxInputBytes = 64 << 20;  // reports have a thousandth of it

/// What the signal handler writes. Versions are never freed, since the handler may be reading one; there is one
/// per row of the document.
std::atomic<const std::string*> g_pending{nullptr};
static_assert(std::atomic<const std::string*>::is_always_lock_free);

/// False, with errno, when not all was written. Async-signal-safe.
bool write_pending() {
  // acquire: pairs with the release in publish(), whose string is complete.
  const std::string* const text = g_pending.exchange(nullptr, std::memory_order_acquire);
  if (text == nullptr) return true;
  for (std::size_t done = 0; done < text->size();) {
    const ssize_t wrote = ::write(STDOUT_FILENO, text->data() + done, text->size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    done += static_cast<std::size_t>(wrote);
  }
  return true;
}

void write_and_end(int signal) {
  (void)write_pending();
  (void)::signal(signal, SIG_DFL);
  (void)::raise(signal);
}

void publish(const std::string& text) {
  static auto& versions = *new std::deque<std::string>;  // never destroyed, for a signal at exit
  // release: pairs with the acquire in write_pending().
  g_pending.store(&versions.emplace_back(text), std::memory_order_release);
}

void write_all(const File& file, const std::string& path, const std::string& text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() && std::fflush(file.get()) == 0;
  if (!written) fail_errno(errno, fmt::format("cannot write '{}'", path));
}

void write_in_place(const std::string& path, const std::string& text) {
  File file(std::fopen(path.c_str(), "we"), &std::fclose);
  if (file == nullptr) fail_errno(errno, fmt::format("cannot write '{}'", path));
  write_all(file, path, text);
  // The last bytes reach the file system here: a full disk may show only now.
  if (std::fclose(file.release()) != 0) fail_errno(errno, fmt::format("cannot write '{}'", path));
}

/// Writes a new file and gives it the name of the old one, so that a failure keeps the old content. False when the file
/// cannot be replaced, for example in a read-only directory.
bool replace(const std::string& path, const std::string& text) {
  std::error_code error;
  const std::string real = std::filesystem::weakly_canonical(path, error).string();
  struct stat info {};
  if (error) return false;
  const bool exists = ::lstat(real.c_str(), &info) == 0;
  if (exists && !S_ISREG(info.st_mode)) return false;
  // A name of this process's own: the user or another run may have a file of the same name.
  const std::string beside = fmt::format("{}.{}.partial", real, ::getpid());
  File file(std::fopen(beside.c_str(), "wxe"), &std::fclose);
  if (file == nullptr) return false;
  try {
    write_all(file, path, text);
    if (exists) (void)::fchmod(::fileno(file.get()), info.st_mode & 07777);
    if (std::fclose(file.release()) != 0) fail_errno(errno, fmt::format("cannot write '{}'", path));
  } catch (const Error&) {
    (void)::unlink(beside.c_str());
    throw;
  }
  if (::rename(beside.c_str(), real.c_str()) == 0) return true;
  (void)::unlink(beside.c_str());  // a mount point, or another user's file in a directory such as /tmp
  return false;
}

}  // namespace

std::string wrapped(std::string_view text, std::string_view indent, std::size_t columns) {
  std::string out;
  std::string line(indent);
  for (const std::string_view word : split(text, ' ')) {
    if (word.empty()) continue;
    const bool first = line.size() == indent.size();
    if (!first && line.size() + 1 + word.size() > columns) {
      out += line + "\n";
      line = indent;
    } else if (!first) {
      line += ' ';
    }
    line += word;
  }
  return line.size() == indent.size() ? out : out + line + "\n";
}

std::string fitted(std::string_view text, std::size_t columns) {
  constexpr std::size_t kIndent = 4;  // of a second column that has lines of its own
  const auto is_prose = [](std::string_view line) {
    return !line.empty() && line.front() != ' ' && line.find("  ") == std::string_view::npos;
  };
  std::vector<std::string> lines;
  const std::vector<std::string_view> all = split(text, '\n');
  for (std::size_t i = 0; i < all.size();) {
    const std::size_t first = i;
    bool fits = all[i].size() <= columns;
    std::string line(all[i++]);
    if (is_prose(line)) {
      for (; i < all.size() && is_prose(all[i]); ++i) {
        fits = fits && all[i].size() <= columns;
        line.append(" ").append(all[i]);
      }
      if (fits) {
        lines.insert(lines.end(), all.begin() + static_cast<std::ptrdiff_t>(first),
                     all.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
    }
    if (!fits) {
      const std::size_t indent = line.find_first_not_of(' ');
      const std::size_t gap = line.find("  ", indent);
      std::size_t at = gap == std::string::npos ? indent : line.find_first_not_of(' ', gap);
      std::string begin = line.substr(0, at);
      const std::string rest = line.substr(at);
      if (at > columns * 2 / 3) {
        at = indent + kIndent;
        begin = fmt::format("{}\n{:{}}", line.substr(0, gap), "", at);
      }
      line = begin + wrapped(rest, std::string(at, ' '), columns).substr(at);
      line.pop_back();  // the last newline
    }
    lines.push_back(line);
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::size_t columns_of_stdout() {
  if (::isatty(STDOUT_FILENO) == 0) return std::string::npos;
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kTerminalColumns;
}

bool use_colors() {
  return ::isatty(STDOUT_FILENO) != 0 && env::get("TERM") != "dumb" && !env::get("NO_COLOR");
}

std::string colored(std::string_view text, Color color, bool colors) {
  if (!colors) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", color == Color::green ? 32 : 31, text);
}

bool same_destination(const std::string& one, const std::string& other) {
  if (one.empty() || other.empty()) return false;
  if (is_stdout(one) || is_stdout(other)) return one == other;
  // The files may not be there yet.
  const auto real = [](const std::string& path) {
    std::error_code error;
    const std::filesystem::path whole = std::filesystem::absolute(path, error);
    const std::filesystem::path found = std::filesystem::weakly_canonical(whole, error);
    return error ? whole : found;
  };
  std::error_code error;
  return real(one) == real(other) || std::filesystem::equivalent(one, other, error);
}

void refuse_same_destination(const char* option, const std::string& path, const char* other_option,
                             const std::string& other_path) {
  if (!same_destination(path, other_path)) return;
  throw UsageError(fmt::format("'{} {}' and '{} {}' would both write to {}", option, path, other_option,
                               other_path, is_stdout(path) ? "standard output" : "the same file"));
}

std::string read_input(const std::string& path) {
  // Not os::read_text_file, which reads no pipes.
  const os::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) fail_errno(errno, fmt::format("cannot read '{}'", path));
  // A device such as /dev/zero has no end.
  require(S_ISREG(status.st_mode) || S_ISFIFO(status.st_mode),
          "cannot read '{}': it is {}, not a file or a pipe", path,
          S_ISDIR(status.st_mode) ? "a directory" : "a device");
  std::string text;
  std::array<char, 64 << 10> piece;
  for (;;) {
    const ssize_t got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(errno, fmt::format("cannot read '{}'", path));
    if (got == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
    require(text.size() <= kMaxInputBytes, "cannot read '{}': it has more than {} MiB", path,
            kMaxInputBytes >> 20);
  }
}

void print(const std::string& text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) fail_errno(errno, "cannot write the output");
}

void print_error(const std::string& text) {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

void check_writable(const std::string& path) {
  if (path.empty() || is_stdout(path)) return;
  const auto opens = [&](int more) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | more, 0666);
    if (fd >= 0) (void)::close(fd);
    return fd >= 0;
  };
  if (opens(0)) return;
  // A file that is not there is not left there: a run that is interrupted would leave it empty.
  if (errno == ENOENT && opens(O_CREAT | O_EXCL)) {
    (void)::unlink(path.c_str());
    return;
  }
  if (errno == EEXIST && opens(O_CREAT)) return;  // a symbolic link to nothing, or made meanwhile
  fail_errno(errno, fmt::format("cannot write '{}'", path));
}

void write_output(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  if (is_stdout(path)) return print(text);
  if (!replace(path, text)) write_in_place(path, text);
}

LiveDocument::LiveDocument(std::string path) : path_(std::move(path)) {
  if (!is_stdout(path_)) {
    replaceable_ = !path_.empty();
    return;
  }
  for (const int signal : kEndings) {
    struct sigaction now {};
    // A signal that the parent process ignores (nohup ignores SIGHUP) stays ignored.
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    now.sa_handler = write_and_end;
    (void)::sigaction(signal, &now, nullptr);
  }
}

LiveDocument::~LiveDocument() {
  if (is_stdout(path_)) (void)write_pending();
}

void LiveDocument::update(const std::string& text) {
  if (is_stdout(path_)) publish(text);
  if (replaceable_) replaceable_ = replace(path_, text);
}

void LiveDocument::finish(const std::string& text) {
  if (is_stdout(path_)) {
    publish(text);
    if (!write_pending()) fail_errno(errno, "cannot write the output");
  } else {
    write_output(path_, text);
  }
}

}  // namespace onehop::cli
