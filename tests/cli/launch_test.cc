// SPDX-License-Identifier: Apache-2.0
// onehop launch, as a user sees it.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/command.h"

namespace onehop::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

class Launch : public CommandTest {
 protected:
  static std::vector<std::string> shell(std::vector<std::string> arguments, const std::string& script) {
    arguments.insert(arguments.begin(), "launch");
    for (const char* word : {"--", "sh", "-c"}) arguments.emplace_back(word);
    arguments.push_back(script);
    return arguments;
  }
};

TEST_F(Launch, GivesEveryRankTorchrunsVariablesAndOurs) {
  const Result result =
      run(shell({"-n", "3"},
                "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR "
                "$ONEHOP_RANK/$ONEHOP_SIZE; test $MASTER_PORT -gt 0; "
                "test -d ${ONEHOP_STORE#file:} && test $(stat -c %a ${ONEHOP_STORE#file:}/..) = 700"),
          options_);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(lines_of(result.out), UnorderedElementsAre("0/3 0/3 0 127.0.0.1 0/3", "1/3 1/3 0 127.0.0.1 1/3",
                                                         "2/3 2/3 0 127.0.0.1 2/3"));
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(left_behind(), 0);
}

TEST_F(Launch, PassesArgumentsThroughUntouched) {
  const Result result =
      run({"launch", "-n", "1", "--", "printf", "%s|", "-n", "--tag-output", "two words", "--"}, options_);
  EXPECT_EQ(result.out, "-n|--tag-output|two words|--|");
  EXPECT_EQ(result.exit_code, 0);
}

TEST_F(Launch, KeepsGoingWithoutARankThatFailsIfAsked) {
  const Result result = run(shell({"-n", "3", "--keep-going"},
                                  "if [ $RANK = 1 ]; then kill -9 $$; fi; sleep 0.5; echo alive $RANK"),
                            options_);
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_THAT(lines_of(result.out), UnorderedElementsAre("alive 0", "alive 2"));
  EXPECT_EQ(result.err, "onehop: rank 1 was killed by SIGKILL\n");
  EXPECT_EQ(left_behind(), 0);
}

TEST_F(Launch, NamesEveryRankThatFailsWhenItKeepsGoing) {
  const std::filesystem::path go = base_ / "go";
  Command command(
      shell({"-n", "4", "--keep-going"},
            fmt::format("case $RANK in 1) kill -9 $$ ;; "
                        "3) while ! test -e '{}'; do sleep 0.01; done; exit 5 ;; esac; echo alive $RANK",
                        go.string())),
      options_);
  command.wait_for_error("rank 1");
  std::ofstream(go).close();
  const Result result = command.finish();
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_THAT(lines_of(result.out), UnorderedElementsAre("alive 0", "alive 2"));
  EXPECT_EQ(result.err, "onehop: rank 1 was killed by SIGKILL\nonehop: rank 3 exited with code 5\n");
}

TEST_F(Launch, WritesTheOutputOfEachRankToAFileIfAsked) {
  const std::string folder = base_ / "logs";
  const std::vector<std::string> options = {"-n", "2", "--log-dir", folder};
  ASSERT_EQ(run(shell(options, "echo old"), options_).exit_code, 0);
  const Result result = run(shell(options, "echo out $RANK; echo err $RANK >&2"), options_);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out + result.err, "");
  for (const char* rank : {"0", "1"}) {
    EXPECT_EQ(read(folder + "/rank-" + rank + ".log"), std::string("out ") + rank + "\nerr " + rank + "\n");
  }
  const Result refused = run(shell({"-n", "2", "--log-dir", "/proc/nothing"}, "true"), options_);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("cannot make '/proc/nothing'"));
}

TEST_F(Launch, PythonsOutputOfARankThatIsKilledIsNotLost) {
  const Result result = run({"launch", "-n", "1", "--prefix", "--", "python3", "-c",
                             "import os, signal; print('last words'); os.kill(os.getpid(), signal.SIGKILL)"},
                            options_);
  EXPECT_EQ(result.out, "[0] last words\n");
}

TEST_F(Launch, EndsAllRanksWhenOneFailsAndSaysWhichInOneLine) {
  const Result result =
      run(shell({"-n", "4"}, "if [ $RANK = 2 ]; then exit 7; fi; exec sleep 1000"), options_);
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(lines_of(result.err), SizeIs(1));
  EXPECT_THAT(result.err, AllOf(HasSubstr("onehop: rank 2"), HasSubstr("code 7")));
  EXPECT_EQ(left_behind(), 0);
}

TEST_F(Launch, ReportsARankThatASignalKilled) {
  const Result result =
      run(shell({"-n", "2"}, "if [ $RANK = 1 ]; then kill -SEGV $$; fi; exec sleep 1000"), options_);
  EXPECT_EQ(result.exit_code, 128 + SIGSEGV);
  EXPECT_THAT(lines_of(result.err), SizeIs(1));
  EXPECT_THAT(result.err, AllOf(HasSubstr("rank 1"), HasSubstr("SIGSEGV")));
}

TEST_F(Launch, KillsRanksThatIgnoreTheRequestToEnd) {
  // Rank 0 fails only once rank 1 has its trap in place.
  const std::string script =
      "if [ $RANK = 1 ]; then trap '' TERM; : > $ONEHOP_RUNTIME_DIR/ready; while :; do sleep 0.01; done; fi; "
      "while ! test -e $ONEHOP_RUNTIME_DIR/ready; do :; done; rm $ONEHOP_RUNTIME_DIR/ready; exit 3";
  const Result result = run(shell({"-n", "2", "--timeout-kill", "50ms"}, script), options_);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(left_behind(), 0);
}

TEST_F(Launch, NoticesTheEndOfItsRanksWhereTheParentIgnoresSigchld) {
  options_.program = "/bin/sh";
  const std::string script = "trap '' CHLD; exec \"$0\" launch -n 2 -- sh -c 'exit 3'";
  const Result result = run({"-c", script, ONEHOP_COMMAND}, options_);
  EXPECT_EQ(result.exit_code, 3) << result.err;
}

TEST_F(Launch, TheStoreHasAnAbsolutePathIfTheRuntimeDirectoryIsRelative) {
  options_.program = "/bin/sh";
  const std::string script =
      "cd \"$ONEHOP_RUNTIME_DIR\" && ONEHOP_RUNTIME_DIR=. exec \"$0\" launch -n 2 -- "
      "sh -c 'cd / && test -d ${ONEHOP_STORE#file:}'";
  const Result result = run({"-c", script, ONEHOP_COMMAND}, options_);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(left_behind(), 0);
}

TEST_F(Launch, LeavesNoProcessThatRanksStarted) {
  const Result result = run(
      shell({"-n", "2"}, "sleep 1000 > /dev/null 2>&1 & echo $!; if [ $RANK = 1 ]; then exit 1; fi; exit 0"),
      options_);
  EXPECT_EQ(result.exit_code, 1);
  const std::vector<std::string> pids = lines_of(result.out);
  ASSERT_FALSE(pids.empty());
  for (const std::string& pid : pids) EXPECT_TRUE(disappears(std::stoi(pid))) << pid;
}

TEST_F(Launch, RanksDieWithALauncherThatIsKilledAndTheNextLaunchCleansUp) {
  std::vector<std::string> pids;
  {
    Command command(shell({"-n", "3"}, "echo $$; exec sleep 1000"), options_);
    pids = command.wait_for_lines(3);
    command.signal(SIGKILL);
    EXPECT_EQ(command.finish().exit_code, -SIGKILL);
  }
  for (const std::string& pid : pids) EXPECT_TRUE(disappears(std::stoi(pid))) << pid;
  EXPECT_EQ(left_behind(), 1);
  EXPECT_EQ(run({"launch", "-n", "1", "--", "true"}, options_).exit_code, 0);
  EXPECT_EQ(left_behind(), 0);
}

/// Programs that start `sleep` in ways that its parent's death does not end. Each prints the number of the sleep.
const char* const kBelowAShell = "sh -c 'sh -c \"echo \\$\\$; exec sleep 1000\"; true'; true";
const char* const kInASession = "exec setsid -w sh -c 'echo $$; exec sleep 1000'";
const char* const kOrphan = "setsid sh -c 'echo $$; exec sleep 1000' & exec sleep 1000";
const char* const kIgnoresHangUps =
    "trap '' HUP TERM; sh -c 'echo $$; exec nohup sleep 1000 > /dev/null 2>&1'; true";

TEST_F(Launch, WhatRanksStartedDiesWithALauncherThatIsKilled) {
  for (const char* script : {kBelowAShell, kInASession, kOrphan, kIgnoresHangUps}) {
    std::vector<std::string> pids;
    {
      Command command(shell({"-n", "2"}, script), options_);
      pids = command.wait_for_lines(2);
      command.signal(SIGKILL);
      EXPECT_EQ(command.finish().exit_code, -SIGKILL);
    }
    for (const std::string& pid : pids) EXPECT_TRUE(disappears(std::stoi(pid))) << script << ' ' << pid;
  }
}

TEST_F(Launch, WhatRanksStartedEndsWithTheJobInEveryCase) {
  const std::string daemon =
      "setsid sh -c 'echo $$; : > $ONEHOP_RUNTIME_DIR/ready; exec sleep 1000' & "
      "while ! test -e $ONEHOP_RUNTIME_DIR/ready; do :; done; ";
  for (const char* end : {"exit 0", "exit 3", "kill -KILL $$", "exec sleep 1000"}) {
    Command command(shell({"-n", "1", "--timeout-kill", "100ms"}, daemon + end), options_);
    const std::vector<std::string> pids = command.wait_for_lines(1);
    if (std::string_view(end) == "exec sleep 1000") command.signal(SIGTERM);
    (void)command.finish();
    std::filesystem::remove(base_ / "run" / "ready");
    EXPECT_TRUE(disappears(std::stoi(pids.front()))) << end;
  }
  EXPECT_EQ(left_behind(), 0);
}

TEST_F(Launch, DoesNotCleanUpAfterLaunchesThatStillRun) {
  Command first(shell({"-n", "1"}, "echo ready; while test -d ${ONEHOP_STORE#file:}; do :; done"), options_);
  (void)first.wait_for_lines(1);
  EXPECT_EQ(run({"launch", "-n", "1", "--", "true"}, options_).exit_code, 0);
  EXPECT_EQ(left_behind(), 1);
  first.signal(SIGTERM);
  EXPECT_EQ(first.finish().exit_code, -SIGTERM);
  EXPECT_EQ(left_behind(), 0);
}

TEST_F(Launch, PassesUserSignalsOn) {
  for (const int signal : {SIGUSR1, SIGUSR2, SIGHUP}) {
    const std::string name = sigabbrev_np(signal);
    Command command(shell({"-n", "2"}, "trap 'echo got " + name + "; exit 0' " + name +
                                           "; echo ready; while :; do sleep 0.01; done"),
                    options_);
    (void)command.wait_for_lines(2);
    command.signal(signal);
    const Result result = command.finish();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(lines_of(result.out), UnorderedElementsAre("ready", "ready", "got " + name, "got " + name));
  }
}

TEST_F(Launch, EndsQuietlyWhenInterrupted) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Command command(shell({"-n", "2"}, "echo ready; exec sleep 1000"), options_);
    (void)command.wait_for_lines(2);
    command.signal(signal);
    const Result result = command.finish();
    EXPECT_EQ(result.exit_code, -signal) << "it is killed itself, as a shell expects";
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(left_behind(), 0);
  }
}

/// Waits until the process is stopped.
bool stops(const std::string& pid) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    std::ifstream file("/proc/" + pid + "/stat");
    std::string number, name, state;
    if (file >> number >> name >> state && state == "T") return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST_F(Launch, AStoppedRankEndsWithTheOthersWhenInterrupted) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Command command(shell({"-n", "2", "--timeout-kill", "30s"},
                          "if [ $RANK = 1 ]; then echo $$; kill -STOP $$; fi; exec sleep 1000"),
                    options_);
    ASSERT_TRUE(stops(command.wait_for_lines(1).front()));
    const auto start = std::chrono::steady_clock::now();
    command.signal(signal);
    EXPECT_EQ(command.finish().exit_code, -signal);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  }
}

TEST_F(Launch, ASecondInterruptKillsAtOnce) {
  Command command(shell({"-n", "2", "--timeout-kill", "1000s"},
                        "trap 'echo not yet' INT; echo ready; while :; do sleep 0.01; done"),
                  options_);
  (void)command.wait_for_lines(2);
  command.signal(SIGINT);
  (void)command.wait_for_lines(4);
  command.signal(SIGINT);
  EXPECT_EQ(command.finish().exit_code, -SIGINT) << "it is killed itself, as a shell expects";
}

TEST_F(Launch, ARankThatWasKilledBeforeTheSignalIsStillTheOutcome) {
  Command command(shell({"-n", "2", "--keep-going"},
                        "if [ $RANK = 1 ]; then kill -9 $$; fi; trap 'exit 0' TERM; echo ready; "
                        "while :; do sleep 0.01; done"),
                  options_);
  (void)command.wait_for_lines(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // rank 1 dies at once
  command.signal(SIGTERM);
  EXPECT_EQ(command.finish().exit_code, 128 + SIGKILL);
}

TEST_F(Launch, TaggedLinesCarryTheirRankAndNeverMix) {
  const Result result = run(shell({"-n", "4", "--tag-output"},
                                  "i=0; while [ $i -lt 200 ]; do printf 'line '; printf %s $i; echo ' of "
                                  "rank' $RANK; i=$((i+1)); done; "
                                  "echo oops >&2; printf 'no newline'"),
                            options_);
  EXPECT_EQ(result.exit_code, 0);
  const std::vector<std::string> lines = lines_of(result.out);
  EXPECT_THAT(lines, SizeIs(4 * 201));
  for (int rank = 0; rank < 4; ++rank) {
    const std::string tag = "[" + std::to_string(rank) + "] ";
    std::vector<std::string> own;
    std::copy_if(lines.begin(), lines.end(), std::back_inserter(own),
                 [&](const std::string& line) { return line.starts_with(tag); });
    ASSERT_THAT(own, SizeIs(201));
    for (int i = 0; i < 200; ++i) {
      EXPECT_EQ(own[static_cast<std::size_t>(i)],
                tag + "line " + std::to_string(i) + " of rank " + std::to_string(rank));
    }
    EXPECT_EQ(own.back(), tag + "no newline");
  }
  EXPECT_THAT(lines_of(result.err), UnorderedElementsAre("[0] oops", "[1] oops", "[2] oops", "[3] oops"));
}

TEST_F(Launch, TaggedOutputDoesNotWaitForADaemonThatKeepsThePipe) {
  const Result result = run(shell({"-n", "1", "--tag-output"}, "setsid sleep 1000 & echo $!"), options_);
  EXPECT_EQ(result.exit_code, 0);
  ASSERT_THAT(result.out, MatchesRegex("\\[0\\] [0-9]+\n"));
  EXPECT_TRUE(disappears(std::stoi(result.out.substr(4))));
}

TEST_F(Launch, StandardInputGoesToRankZeroOnly) {
  CommandOptions options = options_;
  options.input = "hello\n";
  const Result result = run(shell({"-n", "3", "--tag-output"}, "cat; echo end"), options);
  EXPECT_THAT(lines_of(result.out), UnorderedElementsAre("[0] hello", "[0] end", "[1] end", "[2] end"));
}

TEST_F(Launch, AProgramThatCannotRunIsOneClearLine) {
  const Result missing = run({"launch", "-n", "4", "--", "no-such-program-here"}, options_);
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("no-such-program-here"), HasSubstr("No such file")));
  EXPECT_THAT(lines_of(missing.err), SizeIs(1));
  const Result forbidden = run({"launch", "-n", "2", "--", "/etc/passwd"}, options_);
  EXPECT_EQ(forbidden.exit_code, 126);
  EXPECT_THAT(lines_of(forbidden.err), SizeIs(1));
  EXPECT_EQ(left_behind(), 0);
}

TEST_F(Launch, RanksInheritNoDescriptorOfTheLaunchers) {
  // What the test itself was started with passes through; the launcher must add nothing.
  const std::string count = "ls /proc/self/fd | wc -l";
  std::FILE* const direct = ::popen(count.c_str(), "r");
  ASSERT_NE(direct, nullptr);
  char line[32] = {};
  ASSERT_NE(std::fgets(line, sizeof line, direct), nullptr);
  (void)::pclose(direct);
  EXPECT_EQ(run(shell({"-n", "1"}, count), options_).out, line);
  EXPECT_EQ(run(shell({"-n", "1", "--tag-output"}, count), options_).out, std::string("[0] ") + line);
}

/// Prints the processors that a process may run on.
const char* const kProcessors = "grep Cpus_allowed_list /proc/self/status";

TEST_F(Launch, BindsEveryRankToACoreOrANode) {
  const json machine = json::parse(run({"topo", "--json", "-"}, options_).out).at("host");
  const int cores = machine.at("cores");
  std::vector<std::string> on_cores =
      lines_of(run(shell({"-n", "3", "--bind", "cores", "--tag-output"}, kProcessors), options_).out);
  ASSERT_THAT(on_cores, SizeIs(3));
  std::sort(on_cores.begin(), on_cores.end());  // by their tags
  std::set<std::string> processors;
  for (const std::string& line : on_cores) processors.insert(line.substr(line.find("Cpus")));
  EXPECT_THAT(processors, SizeIs(std::min(cores, 3)))
      << "neighbors on different cores, as far as there are some";

  const Result on_nodes = run(shell({"-n", "2", "--bind", "numa"}, kProcessors), options_);
  EXPECT_THAT(lines_of(on_nodes.out), SizeIs(2)) << on_nodes.err;
}

TEST_F(Launch, LeavesRanksWhereItRunsItselfUnlessAsked) {
  const Result plain = run(shell({"-n", "1"}, kProcessors), options_);
  EXPECT_EQ(run(shell({"-n", "1", "--bind", "none"}, kProcessors), options_).out, plain.out);
}

TEST_F(Launch, BindsAmongTheProcessorsThatItMayUseItself) {
  std::vector<std::string> within_one = {"launch", "-n", "1", "--bind", "cores", "--", ONEHOP_COMMAND};
  const std::string one = run(shell({"-n", "1", "--bind", "cores"}, kProcessors), options_).out;
  for (const char* where : {"cores", "numa"}) {
    std::vector<std::string> nested = within_one;
    for (const std::string& word : shell({"-n", "2", "--bind", where}, kProcessors)) nested.push_back(word);
    EXPECT_EQ(run(nested, options_).out, one + one);
  }
}

TEST_F(Launch, RanksOnCoresOfTheirOwnSpin) {
  const json machine = json::parse(run({"topo", "--json", "-"}, options_).out).at("host");
  if (machine.at("cores") < 2) GTEST_SKIP() << "needs two cores";
  options_.environment["ONEHOP_LOG"] = "info";
  const std::vector<std::string> bench = {ONEHOP_COMMAND, "bench", "all-reduce", "--device", "host",
                                          "--sizes",      "4K",    "--iters",    "2"};
  std::vector<std::string> bound = {"launch", "-n", "2", "--bind", "cores", "--"};
  bound.insert(bound.end(), bench.begin(), bench.end());
  const Result result = run(bound, options_);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("calls compared always, waits spin"));
}

}  // namespace
}  // namespace onehop::test
