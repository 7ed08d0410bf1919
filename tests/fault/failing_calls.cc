#include "fault/failing_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstring>

namespace onehop::fault {
namespace {

std::atomic<const FailingCall*> g_armed{nullptr};
std::atomic<int> g_calls_left{0};
std::atomic<bool> g_struck{false};

[[maybe_unused]] bool fails(const char* name) {
  const FailingCall* const armed = g_armed.load(std::memory_order_relaxed);
  if (armed == nullptr || std::strcmp(armed->name, name) != 0 || g_calls_left.fetch_sub(1) != 0) return false;
  g_struck = true;
  errno = armed->error;
  return true;
}

template <class F>
[[maybe_unused]] F* next(const char* name, F* /*type*/) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

bool can_fail_calls() {
#if defined(__SANITIZE_THREAD__)
  return false;
#else
  return true;
#endif
}

const std::vector<FailingCall>& failing_calls() {
  static const std::vector<FailingCall> calls = {
      {"memfd_create", EMFILE}, {"fallocate", ENOSPC},   {"mmap", ENOMEM},      {"socket", EMFILE},
      {"bind", EADDRINUSE},     {"listen", EOPNOTSUPP},  {"accept4", EMFILE},   {"connect", EACCES},
      {"sendmsg", ENOBUFS},     {"recvmsg", ENOMEM},     {"poll", ENOMEM},      {"open", EMFILE},
      {"openat", ENFILE},       {"flock", ENOLCK},       {"renameat", ENOSPC},  {"mkdtemp", EACCES},
      {"fcntl", EINVAL},        {"getsockopt", ENOBUFS}, {"getrandom", ENOSYS},
  };
  return calls;
}

const std::vector<FailingCall>& interrupted_calls() {
  static const std::vector<FailingCall> calls = {{"poll", EINTR},      {"recvmsg", EINTR},
                                                 {"sendmsg", EINTR},   {"accept4", EINTR},
                                                 {"fallocate", EINTR}, {"getrandom", EINTR}};
  return calls;
}

void arm_failing_call(const FailingCall& call, int nth) {
  g_calls_left = nth;
  g_struck = false;
  g_armed = &call;
}

bool disarm_failing_call() {
  g_armed = nullptr;
  return g_struck;
}

}  // namespace onehop::fault

// ThreadSanitizer's own definitions are called before it has set itself up: nothing may stand before those.
#if !defined(__SANITIZE_THREAD__)

// NAME(parameters) -> fails, or calls the C library's.
#define ONEHOP_FAILING(result, name, throws, parameters, arguments)                 \
  extern "C" __attribute__((visibility("default"))) result name parameters throws { \
    static auto* const real = onehop::fault::next(#name, &name);                    \
    return onehop::fault::fails(#name) ? static_cast<result>(-1) : real arguments;  \
  }

ONEHOP_FAILING(int, memfd_create, __THROW, (const char* name, unsigned flags), (name, flags))
ONEHOP_FAILING(int, fallocate, , (int fd, int mode, off_t offset, off_t length), (fd, mode, offset, length))
ONEHOP_FAILING(int, socket, __THROW, (int domain, int type, int protocol), (domain, type, protocol))
ONEHOP_FAILING(int, bind, __THROW, (int fd, const sockaddr* address, socklen_t size), (fd, address, size))
ONEHOP_FAILING(int, listen, __THROW, (int fd, int backlog), (fd, backlog))
ONEHOP_FAILING(int, accept4, , (int fd, sockaddr* address, socklen_t* size, int flags),
               (fd, address, size, flags))
ONEHOP_FAILING(int, connect, , (int fd, const sockaddr* address, socklen_t size), (fd, address, size))
ONEHOP_FAILING(ssize_t, sendmsg, , (int fd, const msghdr* message, int flags), (fd, message, flags))
ONEHOP_FAILING(ssize_t, recvmsg, , (int fd, msghdr* message, int flags), (fd, message, flags))
ONEHOP_FAILING(int, poll, , (pollfd * entries, nfds_t count, int timeout), (entries, count, timeout))
ONEHOP_FAILING(int, flock, __THROW, (int fd, int operation), (fd, operation))
ONEHOP_FAILING(int, renameat, __THROW, (int from, const char* old, int to, const char* name),
               (from, old, to, name))
ONEHOP_FAILING(int, getsockopt, __THROW, (int fd, int level, int option, void* value, socklen_t* size),
               (fd, level, option, value, size))
ONEHOP_FAILING(ssize_t, getrandom, , (void* buffer, size_t size, unsigned flags), (buffer, size, flags))

// What does not fit the pattern: pointers as results, and open arguments.
extern "C" __attribute__((visibility("default"))) void* mmap(void* address, size_t size, int protection,
                                                             int flags, int fd, off_t offset) __THROW {
  static auto* const real = onehop::fault::next("mmap", &mmap);
  return onehop::fault::fails("mmap") ? MAP_FAILED : real(address, size, protection, flags, fd, offset);
}

extern "C" __attribute__((visibility("default"))) char* mkdtemp(char* path) __THROW {
  static auto* const real = onehop::fault::next("mkdtemp", &mkdtemp);
  return onehop::fault::fails("mkdtemp") ? nullptr : real(path);
}

extern "C" __attribute__((visibility("default"))) int open(const char* path, int flags, ...) {
  static auto* const real = onehop::fault::next("open", &open);
  va_list rest;
  va_start(rest, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, int) : 0;
  va_end(rest);
  return onehop::fault::fails("open") ? -1 : real(path, flags, mode);
}

extern "C" __attribute__((visibility("default"))) int openat(int directory, const char* path, int flags,
                                                             ...) {
  static auto* const real = onehop::fault::next("openat", &openat);
  va_list rest;
  va_start(rest, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, int) : 0;
  va_end(rest);
  return onehop::fault::fails("openat") ? -1 : real(directory, path, flags, mode);
}

extern "C" __attribute__((visibility("default"))) int fcntl(int fd, int command, ...) {
  static auto* const real = onehop::fault::next("fcntl", &fcntl);
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);  // an int travels in the same register
  va_end(rest);
  return onehop::fault::fails("fcntl") ? -1 : real(fd, command, argument);
}

#endif
