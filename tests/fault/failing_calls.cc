// SPDX-License-Identifier: Apache-2.0
#include "fault/failing_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "support/sanitizers.h"

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
#if ONEHOP_ADDRESS_SANITIZED && defined(__clang__)
  // Clang links AddressSanitizer into the program, where the functions below replace its own. Those can also be found by
  // another name. Unless its pthread_create is called, it does not know the threads.
  std::array<char, 64> own{};
  std::snprintf(own.data(), own.size(), "__interceptor_%s", name);
  if (void* const found = ::dlsym(RTLD_DEFAULT, own.data()); found != nullptr)
    return reinterpret_cast<F*>(found);
#endif
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

bool can_fail_calls() {
#if ONEHOP_THREAD_SANITIZED
  return false;
#else
  return true;
#endif
}

const std::vector<FailingCall>& failing_calls() {
  static const std::vector<FailingCall> calls = {
      // Memory and descriptors.
      {"memfd_create", EMFILE},
      {"fallocate", ENOSPC},
      {"mmap", ENOMEM},
      {"munmap", ENOMEM},
      {"fcntl", EINVAL},
      {"fstat", EIO},
      {"dup3", EMFILE},
      {"close", EIO},
      {"getrandom", ENOSYS},
      {"process_vm_readv", ENOMEM},
      // Sockets.
      {"socket", EMFILE},
      {"bind", EADDRINUSE},
      {"listen", EOPNOTSUPP},
      {"accept", EMFILE},
      {"accept4", EMFILE},
      {"connect", EACCES},
      {"send", ENOBUFS},
      {"recv", ENOMEM},
      {"sendmsg", ENOBUFS},
      {"recvmsg", ENOMEM},
      {"getsockopt", ENOBUFS},
      {"setsockopt", ENOMEM},
      {"getsockname", ENOBUFS},
      {"getpeername", ENOBUFS},
      {"getaddrinfo", EAI_MEMORY},
      // Waiting.
      {"poll", ENOMEM},
      {"syscall", EAGAIN},  // futex
      {"epoll_ctl", ENOSPC},
      {"epoll_wait", EINTR},
      {"timerfd_settime", EINVAL},
      {"ioctl", ENOTTY},
      // Files.
      {"open", EMFILE},
      {"openat", ENFILE},
      {"read", EIO},
      {"write", ENOSPC},
      {"flock", ENOLCK},
      {"renameat", ENOSPC},
      {"unlinkat", EACCES},
      {"lstat", EACCES},
      {"mkdir", ENOSPC},
      {"mkdtemp", EACCES},
      {"rmdir", EBUSY},
      {"opendir", EMFILE},
      // Threads and processes.
      {"pthread_create", EAGAIN},
      {"fork", EAGAIN},
  };
  return calls;
}

const std::vector<FailingCall>& interrupted_calls() {
  static const std::vector<FailingCall> calls = {
      {"poll", EINTR}, {"recvmsg", EINTR}, {"sendmsg", EINTR}, {"accept4", EINTR},   {"fallocate", EINTR},
      {"read", EINTR}, {"write", EINTR},   {"send", EINTR},    {"recv", EINTR},      {"syscall", EINTR},
      {"open", EINTR}, {"openat", EINTR},  {"close", EINTR},   {"getrandom", EINTR}, {"epoll_wait", EINTR},
  };
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

// ThreadSanitizer calls its own definitions before it has set itself up, so nothing may wrap those.
#if !ONEHOP_THREAD_SANITIZED

// NAME(parameters): fails, or calls the C library's function.
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
ONEHOP_FAILING(ssize_t, process_vm_readv, __THROW,
               (pid_t process, const iovec* local, unsigned long locals, const iovec* remote,
                unsigned long remotes, unsigned long flags),
               (process, local, locals, remote, remotes, flags))
ONEHOP_FAILING(int, munmap, __THROW, (void* address, size_t size), (address, size))
ONEHOP_FAILING(int, fstat, __THROW, (int fd, struct stat* info), (fd, info))
ONEHOP_FAILING(int, lstat, __THROW, (const char* path, struct stat* info), (path, info))
ONEHOP_FAILING(int, dup3, __THROW, (int from, int to, int flags), (from, to, flags))
ONEHOP_FAILING(int, accept, , (int fd, sockaddr* address, socklen_t* size), (fd, address, size))
ONEHOP_FAILING(ssize_t, send, , (int fd, const void* data, size_t size, int flags), (fd, data, size, flags))
ONEHOP_FAILING(ssize_t, recv, , (int fd, void* data, size_t size, int flags), (fd, data, size, flags))
ONEHOP_FAILING(ssize_t, read, , (int fd, void* data, size_t size), (fd, data, size))
ONEHOP_FAILING(ssize_t, write, , (int fd, const void* data, size_t size), (fd, data, size))
ONEHOP_FAILING(int, setsockopt, __THROW, (int fd, int level, int option, const void* value, socklen_t size),
               (fd, level, option, value, size))
ONEHOP_FAILING(int, getsockname, __THROW, (int fd, sockaddr* address, socklen_t* size), (fd, address, size))
ONEHOP_FAILING(int, getpeername, __THROW, (int fd, sockaddr* address, socklen_t* size), (fd, address, size))
ONEHOP_FAILING(int, epoll_ctl, __THROW, (int set, int operation, int fd, epoll_event* event),
               (set, operation, fd, event))
ONEHOP_FAILING(int, epoll_wait, , (int set, epoll_event* events, int most, int timeout),
               (set, events, most, timeout))
ONEHOP_FAILING(int, timerfd_settime, __THROW, (int fd, int flags, const itimerspec* time, itimerspec* old),
               (fd, flags, time, old))
ONEHOP_FAILING(int, unlinkat, __THROW, (int directory, const char* path, int flags), (directory, path, flags))
ONEHOP_FAILING(int, mkdir, __THROW, (const char* path, mode_t mode), (path, mode))
ONEHOP_FAILING(int, rmdir, __THROW, (const char* path), (path))
ONEHOP_FAILING(pid_t, fork, __THROWNL, (), ())

// Functions that do not fit the pattern, because of their results or variable arguments.
extern "C" __attribute__((visibility("default"))) int close(int fd) {
  static auto* const real = onehop::fault::next("close", &close);
  // Linux has released the descriptor whatever close returns.
  const int result = real(fd);
  return onehop::fault::fails("close") ? -1 : result;
}

extern "C" __attribute__((visibility("default"))) DIR* opendir(const char* path) {
  static auto* const real = onehop::fault::next("opendir", &opendir);
  return onehop::fault::fails("opendir") ? nullptr : real(path);
}

extern "C" __attribute__((visibility("default"))) int getaddrinfo(const char* node, const char* service,
                                                                  const addrinfo* hints, addrinfo** found) {
  static auto* const real = onehop::fault::next("getaddrinfo", &getaddrinfo);
  return onehop::fault::fails("getaddrinfo") ? EAI_MEMORY : real(node, service, hints, found);
}

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*start)(void*),
                                                                     void* argument) __THROWNL {
  static auto* const real = onehop::fault::next("pthread_create", &pthread_create);
  return onehop::fault::fails("pthread_create") ? EAGAIN : real(thread, attributes, start, argument);
}

extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) __THROW {
  static auto* const real = onehop::fault::next("ioctl", &ioctl);
  va_list rest;
  va_start(rest, request);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  return onehop::fault::fails("ioctl") ? -1 : real(fd, request, argument);
}

extern "C" __attribute__((visibility("default"))) long syscall(long number, ...) __THROW {
  static auto* const real = onehop::fault::next("syscall", &syscall);
  va_list rest;
  va_start(rest, number);
  long arguments[6];
  for (long& each : arguments) each = va_arg(rest, long);
  va_end(rest);
  return onehop::fault::fails("syscall") ? -1
                                         : real(number, arguments[0], arguments[1], arguments[2],
                                                arguments[3], arguments[4], arguments[5]);
}

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
  void* const argument = va_arg(rest, void*);  // an int is passed in the same register
  va_end(rest);
  return onehop::fault::fails("fcntl") ? -1 : real(fd, command, argument);
}

#endif
