// SPDX-License-Identifier: Apache-2.0
#include "group/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "onehop/version.h"

#include "base/check.h"
#include "base/env.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "group/connect_mesh.h"
#include "group/heartbeat.h"
#include "group/share_choice.h"
#include "os/fault_point.h"
#include "os/host_id.h"
#include "os/private_dir.h"

namespace onehop {
namespace {

// How long an apparent mistake may stand before it becomes an error: another group size, or a message of
// another version of onehop. It may be left from an earlier run, and about to be replaced.
constexpr Duration kGrace{1000};

constexpr const char* kJoining = "joining";

std::string differ_in_size(int size, int rank, int theirs) {
  return fmt::format(
      "ranks 0 and {} differ in the size of the group: {} and {}; give all ranks the same size", rank, size,
      theirs);
}

// The pause between two looks at a key that may change. It starts short, since ranks usually start together.
class Backoff {
 public:
  void wait(const Deadline& deadline) {
    pause_in_wait(pause_, deadline, kJoining);
    pause_ = std::min(pause_ * 2, Duration{20});
  }

 private:
  Duration pause_{1};
};

/// One rank's side of the protocol in rendezvous.h.
class Joiner {
 public:
  Joiner(Store& store, const JoinOptions& options, const Deadline& deadline,
         const std::function<peer_check::Outcomes()>& read_outcomes)
      : store_(store),
        options_(options),
        deadline_(deadline),
        read_outcomes_(read_outcomes),
        prefix_("onehop/" + options.name),
        heartbeat_(store, prefix_ + "/waiting", options.size) {}

  Verdict agree(const Ack& own) {
    announce();
    try {
      Verdict verdict = options_.rank.value == 0 ? lead(own) : follow(own);
      withdraw();
      return verdict;
    } catch (const Error& error) {
      hurry_after(error);
      withdraw();
      throw;
    } catch (...) {
      withdraw();
      throw;
    }
  }

  /// After an interrupt, what is left to do must not delay the end of the call.
  void hurry_after(const Error& error) {
    if (is_interrupt(error) && !clean_up_) clean_up_.emplace();
  }
  [[nodiscard]] const os::Id& id() const { return id_; }
  /// Tells the ranks that are still connecting why this one will not come.
  void tell_failure(const Error& error) noexcept {
    quietly([&] {
      (void)store_.compare_set(key("failed"), "", encode(Status::of(error, options_.rank)), brief());
    });
  }
  /// Throws what another rank told with `tell_failure`. With `last`, when a rank is about to be blamed for
  /// being late, also throws if the store does not answer.
  void poll_failure(bool last) {
    if (last) require_store_answers();
    if (const std::optional<std::string> raw = store_.get_for(key("failed"), Duration{0})) {
      parse_status(*raw).throw_if_failed();
    }
  }
  /// Called by rank 0 once all ranks have read everything. No rank believes what it leaves behind.
  void clean_up() noexcept {
    quietly([&] {
      for (int r = 1; r < options_.size; ++r) (void)store_.delete_key(ack_key(r), brief());
      (void)store_.delete_key(key("verdict"), brief());
      withdraw_offer();
    });
  }

 private:
  /// Whether this rank was interrupted. What another rank told has its number.
  [[nodiscard]] static bool is_interrupt(const Error& error) {
    return error.code() == ErrorCode::aborted && error.origin().none();
  }
  /// Runs clean-up on the error path, whose own failure must not replace the original one.
  template <class F>
  static void quietly(F&& last_words) noexcept {
    try {
      last_words();
    } catch (const Error& error) {
      // A store that an interrupt ends, an interpreter that goes say, ends the clean-up, too: no news.
      if (!is_interrupt(error)) log::warn("while joining failed: {}", error.what());
    } catch (const std::exception& e) {
      log::warn("while joining failed: {}", e.what());
    }
  }

  /// A timeout for optional work, for which a hung store may not hold up this rank.
  [[nodiscard]] Duration brief() const { return within_clean_up(deadline_.at_most(Duration{1000})).left(); }

  [[nodiscard]] std::string key(const std::string& leaf) const {
    return fmt::format("{}/{}/{}", prefix_, os::to_hex(id_), leaf);
  }
  [[nodiscard]] std::string ack_key(int r) const { return key(fmt::format("ack/{}", r)); }
  [[nodiscard]] std::string announce_key(int r) const { return fmt::format("{}/announce/{}", prefix_, r); }
  [[nodiscard]] std::string offer_key() const { return prefix_ + "/offer"; }
  [[nodiscard]] std::string refusal_key(const os::Id& nonce) const {
    return fmt::format("{}/refusal/{}", prefix_, os::to_hex(nonce));
  }

  [[nodiscard]] std::string announcement() const {
    return encode(Announce{.nonce = nonce_, .size = options_.size});
  }
  void announce() {
    nonce_ = os::random_id();
    os::fault_point("announce", options_.rank.value);
    store_.set(announce_key(options_.rank.value), announcement(), deadline_.left());
    os::fault_point("announced", options_.rank.value);
  }

  // A rank that fails may come again at once under another number. So a value under a shared name is deleted
  // by its owner only.
  void delete_own(const std::string& name, const std::string& value) {
    if (store_.get_for(name, Duration{0}) == value) (void)store_.delete_key(name, brief());
  }
  void withdraw() noexcept {
    quietly([&] {
      delete_own(announce_key(options_.rank.value), announcement());
      if (!heartbeat_.last().empty()) delete_own(heartbeat_.key(), heartbeat_.last());
    });
  }
  /// Before a rank is blamed for silence: throws if it is the store that does not answer.
  void require_store_answers() { (void)store_.delete_key(refusal_key(nonce_), Duration{0}); }
  void withdraw_offer() { delete_own(offer_key(), offer_); }
  /// Between a look and a deletion, another rank's announcement may have been set and lost.
  void announce_again_if_lost() {
    const std::string name = announce_key(options_.rank.value);
    const std::optional<std::string> raw = store_.get_for(name, Duration{0});
    if (!raw) store_.set(name, announcement(), deadline_.left());
    note_rival(raw);
  }
  [[nodiscard]] std::string about_rival() const {
    if (!has_rival_) return "";
    return fmt::format("; another process joins as rank {}, too: give each its own number",
                       options_.rank.value);
  }
  /// What an earlier run had left was replaced by `announce`.
  void note_rival(const std::optional<std::string>& announced) {
    if (announced && *announced != announcement()) has_rival_ = true;
  }

  /// All that may block here is the store.
  static constexpr Duration kLateStore{500};
  static constexpr const char* kNoAnswer = "did not answer (died, or left from an earlier run)";

  [[noreturn]] void fail_missing(const std::vector<int>& missing, std::string_view what) {
    require_store_answers();
    std::string late;
    if (const auto by = Deadline::Clock::now() - deadline_.at(); by > kLateStore) {
      late = fmt::format(
          "; it returns {} ms later, because operations of the store did not end by their timeouts",
          std::chrono::ceil<Duration>(by).count());
    }
    std::string names;
    for (const int r : missing) names += fmt::format("{}{}", names.empty() ? "" : ", ", r);
    fail_from(Rank{missing.front()}, ErrorCode::timeout,
              "joining group '{}' of {} through {}: rank {} waited {} ms, but {} {} {}{}{}", options_.name,
              options_.size, store_.describe(), options_.rank.value, deadline_.timeout().count(),
              missing.size() == 1 ? "rank" : "ranks", names, what, about_rival(), late);
  }

  /// One look of several: a rank that still has time to look again does not fail because the store was slow
  /// once.
  std::optional<std::string> look_for(const std::string& name, Duration wait) {
    try {
      return store_.get_for(name, wait);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::timeout || lead_time().expired()) throw;
      return std::nullopt;
    }
  }

  /// The nonce that rank r announced, for which this waits at most `wait`. An unreadable value counts as
  /// nothing while it may still be replaced, and so does another size.
  std::optional<os::Id> read_announcement(int r, Duration wait, std::optional<Deadline>& grace) {
    const Deadline end = Deadline::after(std::min(wait, lead_time().left()));
    Backoff backoff;
    while (true) {
      const std::optional<std::string> raw = look_for(announce_key(r), end.left());
      if (!raw) return std::nullopt;
      try {
        const Announce announce = parse_announce(*raw);
        if (announce.size == options_.size) {
          other_sizes_.erase(r);
          return announce.nonce;
        }
        other_sizes_[r] = announce;
      } catch (const Error&) {
        if (!grace) grace = Deadline::after(std::min(kGrace, lead_time().left()));
        if (grace->expired()) throw;
      }
      if (end.expired()) return std::nullopt;
      backoff.wait(end);
    }
  }

  /// Updates `nonces`, even when it throws for missing ranks. A rank that came counts even if it has given up
  /// since: it did not come too late.
  void read_announcements(std::vector<os::Id>& nonces) {
    std::vector<std::optional<Deadline>> graces(nonces.size());
    const auto came = [&](int r, Duration wait) {
      const auto index = static_cast<std::size_t>(r);
      if (const auto nonce = read_announcement(r, wait, graces[index])) nonces[index] = *nonce;
      return nonces[index] != os::Id{} && !other_sizes_.contains(r);
    };
    std::vector<int> missing;
    for (int r = 1; r < options_.size; ++r) missing.push_back(r);
    while (true) {
      std::erase_if(missing, [&](int r) { return came(r, Duration{0}); });
      while (!missing.empty() && came(missing.front(), kHeartbeatInterval)) missing.erase(missing.begin());
      if (missing.empty()) return;
      refuse_other_sizes();
      if (lead_time().expired()) fail_missing(missing, "did not come");
      throw_if_interrupted(kJoining);
      tell_waiting(missing);
    }
  }

  /// An announcement of another size may be left from an earlier run. An answer to an offer shows that its
  /// rank is there. It may still not have noticed that its previous attempt failed, and announce itself again.
  void refuse_other_sizes() {
    if (other_sizes_.empty()) return;
    std::vector<os::Id> asked(static_cast<std::size_t>(options_.size));
    for (const auto& [r, announce] : other_sizes_) asked[static_cast<std::size_t>(r)] = announce.nonce;
    if (asked != asked_) {
      asked_ = asked;
      size_grace_.reset();
      propose(asked);
    }
    for (const auto& [r, announce] : other_sizes_) {
      if (!look_for(ack_key(r), Duration{0})) continue;
      if (!size_grace_) size_grace_ = Deadline::after(std::min(kGrace, lead_time().left()));
      if (!size_grace_->expired()) return;
      const std::string reason = differ_in_size(options_.size, r, announce.size);
      quietly([&, size = announce.size] { find_ranks_beyond(size); });
      throw Error(ErrorCode::refused, reason);
    }
  }
  /// The ranks of which this one knows nothing, since it was started with a smaller size.
  void find_ranks_beyond(int size) {
    for (int r = options_.size; r < std::min(size, kMaxHostRanks); ++r) {
      const std::optional<std::string> raw = look_for(announce_key(r), Duration{0});
      if (raw) other_sizes_[r] = parse_announce(*raw);
    }
  }

  void tell_waiting(const std::vector<int>& missing) {
    heartbeat_.send(nonce_, missing, lead_time().left());
    note_rival(look_for(announce_key(options_.rank.value), Duration{0}));
    os::fault_point("waiting", options_.rank.value);
  }

  /// Rank 0 gives up a little before the others would, so that it can still tell them why.
  Deadline lead_time() const { return deadline_.with_time_to_tell(); }

  void propose(const std::vector<os::Id>& nonces) {
    if (id_ != os::Id{}) clean_up();
    id_ = os::random_id();
    offer_ = encode(Offer{.id = id_, .nonces = nonces});
    store_.set(offer_key(), offer_, lead_time().left());
  }

  /// The acks of all ranks, or nullopt when an announcement turned out to be stale.
  std::optional<std::vector<Ack>> collect_acks(const std::vector<os::Id>& nonces, const Ack& own) {
    std::vector<Ack> acks(nonces.size());
    acks[0] = own;
    std::vector<int> missing;
    for (int r = 1; r < options_.size; ++r) missing.push_back(r);
    Deadline beat = Deadline::after(kHeartbeatInterval);
    Backoff backoff;
    while (true) {
      std::erase_if(missing, [&](int r) {
        const std::optional<std::string> raw = store_.get_for(ack_key(r), Duration{0});
        if (raw) acks[static_cast<std::size_t>(r)] = parse_ack(*raw);
        return raw.has_value();
      });
      if (missing.empty()) return acks;
      if (lead_time().expired()) fail_missing(missing, kNoAnswer);
      if (beat.expired()) {
        tell_waiting(missing);
        beat = Deadline::after(kHeartbeatInterval);
      }
      for (int r = 1; r < options_.size; ++r) {
        const std::optional<std::string> raw = store_.get_for(announce_key(r), Duration{0});
        if (raw && parse_announce(*raw).nonce != nonces[static_cast<std::size_t>(r)]) return std::nullopt;
      }
      backoff.wait(deadline_);
    }
  }

  Verdict lead(const Ack& own) {
    std::vector<os::Id> nonces(static_cast<std::size_t>(options_.size));
    nonces[0] = nonce_;
    try {
      while (true) {
        read_announcements(nonces);
        propose(nonces);
        os::fault_point("offer", options_.rank.value);
        const std::optional<std::vector<Ack>> acks = collect_acks(nonces, own);
        if (!acks) continue;
        Verdict verdict = decide(*acks);
        store_.set(key("verdict"), encode(verdict), deadline_.left());
        return verdict;
      }
    } catch (const Error& error) {
      hurry_after(error);
      // The refusal goes to each rank that came, under its own nonce: this rank may come again and make
      // another offer before they look.
      Status status = Status::of(error, options_.rank);
      // A refusal concerns the whole group, not this rank.
      if (error.code() == ErrorCode::refused) status.origin = error.origin();
      quietly([&] {
        for (const auto& [unused, announce] : other_sizes_) nonces.push_back(announce.nonce);
        for (std::size_t i = 1; i < nonces.size(); ++i) {
          if (nonces[i] != os::Id{}) store_.set(refusal_key(nonces[i]), encode(status), brief());
        }
      });
      if (id_ != os::Id{}) clean_up();
      throw Error(status.code, status.message, status.origin);
    }
  }

  /// The members; throws when there is to be no group.
  Verdict decide(const std::vector<Ack>& acks) const {
    Verdict verdict;
    for (const Ack& ack : acks) {
      ack.status.throw_if_failed();
      verdict.hellos.push_back(ack.hello);
    }
    std::optional<std::string> reason = reason_to_refuse(verdict.hellos);
    const bool on_gpus = verdict.hellos.front().device != "host";
    if (!reason && on_gpus && std::ranges::any_of(verdict.hellos, &Hello::requires_verified))
      reason = reason_unverified(verdict.hellos, read_outcomes_());
    if (reason) throw Error(ErrorCode::refused, *reason);
    return verdict;
  }

  Verdict follow(const Ack& own) {
    std::optional<Deadline> grace;
    Backoff backoff;
    int offered_size = -1;
    bool acked = false;
    HeartbeatListener heartbeat;
    Deadline listen = Deadline::after(Duration{0});
    while (true) {
      const std::optional<std::string> raw = store_.get_for(offer_key(), Duration{0});
      // Read after the offer: rank 0 refuses before it makes another offer, which is not meant for this
      // attempt.
      if (const std::optional<std::string> refusal = store_.get_for(refusal_key(nonce_), Duration{0})) {
        quietly([&] { (void)store_.delete_key(refusal_key(nonce_), brief()); });
        Status status = parse_status(*refusal);
        if (status.code == ErrorCode::timeout) status.message += about_rival();
        status.throw_if_failed();
      }
      try {
        if (raw) {
          const Offer offer = parse_offer(*raw);
          const auto index = static_cast<std::size_t>(options_.rank.value);
          offered_size = static_cast<int>(offer.nonces.size());
          if (index < offer.nonces.size() && offer.nonces[index] == nonce_ && (!acked || offer.id != id_)) {
            id_ = offer.id;
            acked = true;
            store_.set(ack_key(options_.rank.value), encode(own), deadline_.left());
            os::fault_point("ack", options_.rank.value);
          }
        }
        if (acked) {
          if (const std::optional<std::string> verdict = store_.get_for(key("verdict"), Duration{0})) {
            return parse_verdict(*verdict);
          }
        }
      } catch (const Error& error) {
        hurry_after(error);
        if (acked) tell_failure(error);
        if (!grace) grace = Deadline::after(std::min(kGrace, deadline_.left()));
        if (acked || grace->expired()) Status::of(error, options_.rank).throw_if_failed();
      }
      const bool expired = deadline_.expired();
      if (expired || listen.expired()) {
        heartbeat.hear(store_.get_for(heartbeat_.key(), Duration{0}), Deadline::Clock::now());
        listen = Deadline::after(kHeartbeatInterval);
      }
      if (expired) fail_unled(heartbeat.believed(Deadline::Clock::now()), acked, offered_size);
      if (!acked) announce_again_if_lost();
      backoff.wait(deadline_);
    }
  }

  /// Called when this rank's deadline passed before rank 0 decided or refused.
  [[noreturn]] void fail_unled(const std::optional<Waiting>& waiting, bool acked, int offered_size) {
    const bool other_size = waiting ? waiting->size != options_.size
                                    : !acked && offered_size >= 0 && offered_size != options_.size;
    if (waiting && !other_size) {
      std::vector<int> missing(waiting->ranks.begin(), waiting->ranks.end());
      std::erase_if(missing, [&](int r) { return r <= 0 || r >= options_.size || Rank{r} == options_.rank; });
      if (!missing.empty()) fail_missing(missing, acked ? kNoAnswer : "did not come");
    }
    fail_missing({0}, other_size ? fmt::format("offers a group of {}", waiting ? waiting->size : offered_size)
                      : waiting  ? "took no notice of this rank"
                      : acked    ? "made no decision (it died, or was stopped)"
                                 : "made no offer (it did not come, died, or was stopped)");
  }

  Store& store_;
  const JoinOptions& options_;
  const Deadline& deadline_;
  const std::function<peer_check::Outcomes()>& read_outcomes_;
  const std::string prefix_;
  bool has_rival_ = false;  ///< another process announced itself under the number of this rank after it
  os::Id nonce_{};
  os::Id id_{};
  // Only on rank 0.
  std::string offer_;                    // as it stands in the store
  std::map<int, Announce> other_sizes_;  ///< ranks that announced another size, or are beyond this one's
  std::vector<os::Id> asked_;            ///< those of them to whom the offer is
  std::optional<Deadline> size_grace_;   ///< once one of these answered
  HeartbeatSender heartbeat_;
  std::optional<CleanUpTime> clean_up_;  ///< once this rank was interrupted
};

}  // namespace

std::optional<std::string> reason_to_refuse(const std::vector<Hello>& hellos) {
  const Hello& first = hellos.front();
  const int size = static_cast<int>(hellos.size());
  const bool host = first.device == "host";
  for (const Hello& hello : hellos) {
    const auto differs = [&](const char* what, const auto& zero, const auto& theirs) {
      return fmt::format("ranks 0 and {} differ in {}: {} and {}", hello.rank, what, zero, theirs);
    };
    if (hello.version != first.version) return differs("their onehop version", first.version, hello.version);
    if (hello.size != size) return differ_in_size(size, hello.rank, hello.size);
    if (hello.boot_id != first.boot_id) {
      return fmt::format(
          "ranks 0 and {} are on different machines ({} and {}); onehop works inside one machine", hello.rank,
          first.hostname, hello.hostname);
    }
    if (hello.uid != first.uid) return differs("their user id", first.uid, hello.uid);
    if ((hello.device == "host") != host) return differs("their kind of device", first.device, hello.device);
    if (hello.scratch_bytes != first.scratch_bytes)
      return differs("scratch_bytes", first.scratch_bytes, hello.scratch_bytes);
    if (hello.checks_calls != first.checks_calls) {
      return differs("ONEHOP_CHECK", int{first.checks_calls}, int{hello.checks_calls}) +
             "; set it to the same value for all ranks";
    }
  }
  if (const ShareChoice share = choose_share(hellos); !share.refusal.empty()) return share.refusal;
  const int limit = host ? kMaxHostRanks : kMaxDevices;
  if (size > limit) {
    return fmt::format("a group of {} holds at most {} ranks, got {}", host ? "host ranks" : "GPUs", limit,
                       size);
  }
  std::map<std::string, int> owners;
  for (const Hello& hello : hellos) {
    const auto [at, fresh] = owners.emplace(hello.device, hello.rank);
    if (fresh || host || (hello.overlap && first.overlap)) continue;
    return fmt::format(
        "ranks {} and {} use the same GPU {}; give each its own, or set ONEHOP_ALLOW_OVERLAPPING_DEVICES=1",
        at->second, hello.rank, hello.device);
  }
  return std::nullopt;
}

std::optional<std::string> reason_unverified(const std::vector<Hello>& hellos,
                                             const peer_check::Outcomes& outcomes) {
  for (const Hello& from : hellos) {
    for (const Hello& to : hellos) {
      if (from.device == to.device) continue;
      const auto outcome = outcomes.find({from.device, to.device});
      if (outcome != outcomes.end() && outcome->second) continue;
      return fmt::format(
          "require_verified_peers: that GPU {} of rank {} reaches GPU {} of rank {} {}", from.device,
          from.rank, to.device, to.rank,
          outcome == outcomes.end()
              ? "was not verified since this machine was booted; run 'onehop p2p-check' as this user first"
              : "failed its last check; 'onehop p2p-check' checks again and says what is wrong");
    }
  }
  return std::nullopt;
}

Rendezvous rendezvous(Store& store, const JoinOptions& options, const std::function<Prepared()>& prepare,
                      const Deadline& deadline, const std::function<peer_check::Outcomes()>& read_outcomes) {
  // Try first what can fail on this rank alone, so that a failure reaches everyone with the ack.
  std::optional<os::PrivateDir> directory;
  os::UniqueFd listener;
  Ack own;
  own.hello.version = ONEHOP_VERSION_STRING;
  own.hello.rank = options.rank.value;
  own.hello.size = options.size;
  own.hello.hostname = os::hostname();
  own.hello.uid = ::geteuid();
  try {
    os::fault_point("prepare", options.rank.value);
    Prepared prepared = prepare();
    own.hello.device = std::move(prepared.device);
    own.hello.share_methods = std::move(prepared.share_methods);
    own.hello.share_by = options.share_by;
    own.hello.overlap = options.allow_overlapping_devices;
    own.hello.scratch_bytes = options.scratch_bytes;
    // Host ranks always compare their calls.
    own.hello.checks_calls = own.hello.device != "host" && env::get_flag("ONEHOP_CHECK");
    own.hello.requires_verified = options.require_verified_peers;
    own.hello.boot_id = os::boot_id();
    directory = os::PrivateDir::create("group");
    own.hello.socket = directory->path() + "/socket";
    listener = os::listen_unix(own.hello.socket);
  } catch (const Error& error) {
    own.status = Status::of(naming(options.rank, error), options.rank);
  }

  Joiner joiner(store, options, deadline, read_outcomes);
  const Verdict verdict = joiner.agree(own);

  MeshPlan plan{.id = joiner.id(), .rank = options.rank, .paths = {}, .listener = listener.get()};
  for (const Hello& hello : verdict.hellos) plan.paths.push_back(hello.socket);
  plan.poll_failure = [&](bool last) { joiner.poll_failure(last); };
  Rendezvous result{.id = joiner.id(),
                    .mesh = {},
                    .share_by = choose_share(verdict.hellos).share_by,
                    .checks_calls = own.hello.checks_calls};
  try {
    result.mesh = connect_mesh(plan, deadline);
  } catch (const Error& error) {
    // The others may still wait for this rank's connection: tell them why there will be none.
    joiner.hurry_after(error);
    joiner.tell_failure(error);
    Status::of(error, options.rank).throw_if_failed();
  }
  // Listeners stay until every rank is connected to every other; then no rank needs the store any more.
  try {
    (void)result.mesh->all_gather("", deadline, kJoining);
  } catch (const Error& error) {
    // A rank that gave up before it accepted this one's connection could leave the reason only in the store.
    // Its closed socket looks like its death.
    joiner.hurry_after(error);
    joiner.poll_failure(false);
    throw;
  }
  if (options.rank.value == 0) joiner.clean_up();
  return result;
}

}  // namespace onehop
