// SPDX-License-Identifier: Apache-2.0
#include "c_api/guard.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>

#include "onehop/interrupt.h"

namespace onehop::c_api {
namespace {

struct LastError {
  // A fixed buffer: recording an error must not allocate, since memory may be what ran out.
  std::array<char, 2048> message{};
  int rank = -1;
  onehop_status_t status = ONEHOP_OK;
};

thread_local LastError last_error;

onehop_status_t record(ErrorCode code, Rank rank, std::string_view message) noexcept {
  std::size_t size = std::min(message.size(), last_error.message.size() - 1);
  // Do not cut inside a UTF-8 character: 10xxxxxx continues one.
  while (size < message.size() && size > 0 && (static_cast<unsigned char>(message[size]) & 0xc0) == 0x80)
    --size;
  // memmove, since a callback may pass the last message on as its own.
  std::memmove(last_error.message.data(), message.data(), size);
  last_error.message[size] = '\0';
  last_error.rank = rank.value;
  last_error.status = static_cast<onehop_status_t>(code);
  return last_error.status;
}

static_assert(ONEHOP_ERROR_INVALID_ARGUMENT == static_cast<int>(ErrorCode::invalid_argument));
static_assert(ONEHOP_ERROR_TIMEOUT == static_cast<int>(ErrorCode::timeout));
static_assert(ONEHOP_ERROR_PEER_LOST == static_cast<int>(ErrorCode::peer_lost));
static_assert(ONEHOP_ERROR_ABORTED == static_cast<int>(ErrorCode::aborted));
static_assert(ONEHOP_ERROR_MISMATCH == static_cast<int>(ErrorCode::mismatch));
static_assert(ONEHOP_ERROR_REFUSED == static_cast<int>(ErrorCode::refused));
static_assert(ONEHOP_ERROR_UNSUPPORTED == static_cast<int>(ErrorCode::unsupported));
static_assert(ONEHOP_ERROR_OUT_OF_RESOURCES == static_cast<int>(ErrorCode::out_of_resources));
static_assert(ONEHOP_ERROR_SYSTEM == static_cast<int>(ErrorCode::system));
static_assert(ONEHOP_ERROR_PROTOCOL == static_cast<int>(ErrorCode::protocol));
static_assert(ONEHOP_ERROR_NOT_FOUND == static_cast<int>(ErrorCode::not_found));
static_assert(ONEHOP_ERROR_DRIVER == static_cast<int>(ErrorCode::driver));

}  // namespace

onehop_status_t record_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& e) {
    return record(e.code(), e.origin(), e.message());
  } catch (const std::bad_alloc&) {
    return record(ErrorCode::out_of_resources, Rank{}, "out of memory");
  } catch (const std::exception& e) {
    return record(ErrorCode::system, Rank{}, e.what());
  } catch (...) {
    return record(ErrorCode::system, Rank{}, "an exception of unknown type");
  }
}

onehop_status_t last_error_status() noexcept {
  return last_error.status;
}

char* copy_out(std::string_view value) {
  auto* copy = static_cast<char*>(std::malloc(value.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::copy(value.begin(), value.end(), copy);
  copy[value.size()] = '\0';
  return copy;
}

}  // namespace onehop::c_api

extern "C" {

const char* onehop_last_error(void) {
  return onehop::c_api::last_error.message.data();
}

int onehop_last_error_rank(void) {
  return onehop::c_api::last_error.rank;
}

const char* onehop_status_name(onehop_status_t status) {
  // Every name to_string returns is a literal, so it ends with a NUL.
  return status == ONEHOP_OK ? "ok" : onehop::to_string(static_cast<onehop::ErrorCode>(status)).data();
}

void onehop_set_interrupt_check(int (*interrupted)(void* context), void* context) {
  // Without a function there is nothing to allocate, and nothing else can fail.
  (void)onehop::c_api::guard([&] {
    if (interrupted == nullptr) return onehop::set_interrupt_check({});
    onehop::set_interrupt_check([interrupted, context] { return interrupted(context) != 0; });
  });
}

void onehop_free(void* memory) {
  std::free(memory);
}

}  // extern "C"
