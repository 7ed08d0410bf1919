// SPDX-License-Identifier: Apache-2.0
// Giving up and taking the GIL, such that threads end quietly if the interpreter ends meanwhile.
//
// When the interpreter ends while a daemon thread does not have the GIL, that thread must not go on. Up to Python 3.13,
// taking the GIL then calls pthread_exit, which unwinds the stack. C++ functions that are noexcept would end the process
// with SIGABRT, and destructors would use Python objects without the GIL. So the thread stops where it is, for good, as
// Python 3.14 has it stop by itself.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <type_traits>
#include <utility>

namespace onehop_python {

/// Stops this thread until the process ends.
[[noreturn]] inline void stop_thread() noexcept {
  while (true) pause();
}

/// Calls `f`, which may take the GIL and owns nothing.
template <class F>
decltype(auto) stopping(F&& f) {
  try {
    return f();
  } catch (const abi::__forced_unwind&) {
    stop_thread();
  }
}

/// What this thread needs to take the GIL again, while it is in without_gil.
inline thread_local PyThreadState* given_up = nullptr;

/// Calls `f` without the GIL, which this thread has.
template <class F>
std::invoke_result_t<F&> without_gil(F&& f) {
  PyThreadState* const outer = std::exchange(given_up, PyEval_SaveThread());
  const auto take_again = [&]() noexcept {
    PyThreadState* const own = std::exchange(given_up, outer);
    stopping([&] { PyEval_RestoreThread(own); });
  };
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<F&>>) {
      f();
      take_again();
    } else {
      auto result = f();
      take_again();
      return result;
    }
  } catch (const abi::__forced_unwind&) {
    stop_thread();
  } catch (...) {
    take_again();
    throw;
  }
}

/// Threads in with_gil that have no thread state of Python's. They must not be in PyGILState_Ensure when the interpreter ends,
/// since that function uses what the end frees.
inline std::atomic<int> foreign_threads = 0;
inline std::atomic<bool> refuses_foreign_threads = false;

/// Called with the GIL before the interpreter ends. Waits for the foreign threads that have begun, for at most a second.
inline void refuse_foreign_threads() {
  // Before the look at foreign_threads: pairs with with_gil, which counts before it looks at this.
  refuses_foreign_threads = true;
  without_gil([] {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{1};
    while (foreign_threads != 0 && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
  });
}

/// Calls `f`, which must not throw, with the GIL. Returns false, without calling it, if the interpreter has ended: its
/// objects are gone. In a foreign thread also if it is about to end. For any thread, with or without the GIL.
template <class F>
bool with_gil(F&& f) noexcept {
  // False from the moment when other threads can no longer take the GIL.
  if (Py_IsInitialized() == 0) return false;
  if (PyThreadState* const own = std::exchange(given_up, nullptr)) {
    // Right even if the interpreter has ended since, when PyGILState_Ensure no longer knows this thread.
    stopping([&] { PyEval_RestoreThread(own); });
    f();
    given_up = PyEval_SaveThread();
    return true;
  }
  const bool foreign = PyGILState_GetThisThreadState() == nullptr;
  if (foreign) ++foreign_threads;  // before the look: pairs with refuse_foreign_threads()
  const bool may_enter = !foreign || !refuses_foreign_threads;
  if (may_enter) {
    const PyGILState_STATE state = stopping([] { return PyGILState_Ensure(); });
    f();
    PyGILState_Release(state);
  }
  if (foreign) --foreign_threads;
  return may_enter;
}

}  // namespace onehop_python
