// SPDX-License-Identifier: Apache-2.0
#include "group/group_tuning.h"

#include "backend/cuda/communicator.h"
#include "base/check.h"
#include "base/env.h"
#include "base/log.h"
#include "base/wire.h"
#include "os/text_file.h"

namespace onehop {
namespace {

constexpr std::size_t kMaxFileName = 4096;
constexpr std::size_t kPiece = 32 << 10;  // bytes of text per message; a message carries at most kMaxPayload

std::string describe(const std::string& file) {
  return fmt::format("tuning file '{}'", file);
}

Tuning parse(const TuningText& text) {
  if (text.file.empty()) return {};
  return Tuning::from_json(text.json, describe(text.file));
}

}  // namespace

TuningText choose_tuning(const JoinOptions& options) {
  const bool named = !options.tuning.empty();
  TuningText chosen;
  chosen.file = named ? options.tuning : env::get("ONEHOP_TUNING").value_or("");
  if (chosen.file.empty()) return chosen;
  try {
    chosen.json = os::read_text_file(chosen.file, describe(chosen.file), kMaxTuningBytes);
  } catch (const Error& error) {
    fail(error.code(), "{} ({} names it; 'onehop tune --out FILE' writes one)", error.message(),
         named ? "JoinOptions::tuning" : "ONEHOP_TUNING");
  }
  const Tuning table = parse(chosen);
  const std::string gpu = options.device.is_host() ? "" : device_name(options.device);
  if (!gpu.empty() && !table.device.empty() && table.device != gpu) {
    log::warn("{} was measured on '{}', this is '{}'; 'onehop tune' measures here", describe(chosen.file),
              table.device, gpu);
  }
  return chosen;
}

std::shared_ptr<const GroupTuning> share_tuning(IpcChannel::Mesh& mesh, Rank rank, const TuningText& own,
                                                const Deadline& deadline) {
  TuningText text;
  bool more = true;
  while (more) {
    wire::Writer out;
    if (rank == Rank{0}) {
      const std::string_view rest = std::string_view(own.json).substr(text.json.size());
      out.put(static_cast<std::uint8_t>(rest.size() > kPiece)).put_bytes(own.file);
      out.put_bytes(rest.substr(0, kPiece));
    }
    const std::string raw = mesh.all_gather(out.str(), deadline, "joining").front();
    wire::Reader in(raw, "tuning table of rank 0");
    more = in.get<std::uint8_t>() != 0;
    text.file = in.get_bytes(kMaxFileName);
    text.json += in.get_bytes(kPiece);
    in.finish();
    if (text.json.size() > kMaxTuningBytes) {
      fail(ErrorCode::protocol, "tuning table of rank 0: more than the limit of {} bytes", kMaxTuningBytes);
    }
  }
  return std::make_shared<GroupTuning>(GroupTuning{.file = text.file, .table = parse(text)});
}

}  // namespace onehop
