// SPDX-License-Identifier: Apache-2.0
// Mistakes of users: each prints one line on stderr and nothing on stdout, and has the right exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/variables.h"
#include "cli/command.h"

namespace onehop::test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

struct Mistake {
  const char* name;
  std::vector<std::string> arguments;
  int exit_code;
  std::string named;  ///< must be in the message
};

std::vector<std::string> bench_of(const char* collective, std::vector<std::string> rest) {
  rest.insert(rest.begin(), {"bench", collective});
  return rest;
}
std::vector<std::string> bench(std::vector<std::string> rest) {
  return bench_of("all-reduce", std::move(rest));
}

class Usage : public ::testing::TestWithParam<Mistake> {};

TEST_P(Usage, IsOneClearLineAndANonZeroExit) {
  const Mistake& mistake = GetParam();
  const Result result = run(mistake.arguments);
  EXPECT_EQ(result.exit_code, mistake.exit_code) << result.err;
  EXPECT_THAT(lines_of(result.err), SizeIs(1)) << result.err;
  EXPECT_THAT(result.err, StartsWith("onehop: "));
  EXPECT_THAT(result.err, HasSubstr(mistake.named));
  EXPECT_EQ(result.out, "");
  if (mistake.exit_code == 2) {
    EXPECT_THAT(result.err, HasSubstr("--help'"));
  }
}

const Mistake kMistakes[] = {
    {"NoCommand", {}, 2, "a subcommand is missing; there are bench, tune, "},
    {"UnknownCommand", {"bnech"}, 2, "unknown subcommand 'bnech': did you mean 'bench'?"},
    {"UnknownCommandSwapped", {"tpoo"}, 2, "unknown subcommand 'tpoo': did you mean 'topo'?"},
    {"UnknownCommandFarFromAll", {"frobnicate"}, 2, "unknown subcommand 'frobnicate' (see"},
    {"UnknownOption", bench({"--szies", "1K"}), 2,
     "unknown option '--szies' of 'bench': did you mean '--sizes'?"},
    {"UnknownOptionWithValue", bench({"--rnaks=2"}), 2, "did you mean '--ranks'?"},
    {"OptionOfNcclTests", bench({"-b", "8"}), 2,
     "unknown option '-b' of 'bench'; what nccl-tests calls so is --sizes FIRST:LAST:FACTOR"},
    {"OptionOfNcclTestsWithItsValue", bench({"-b8", "-e1K"}), 2, "is --sizes FIRST:LAST:FACTOR"},
    {"OptionOfNcclTestsThatIsFixedHere", bench({"-a", "1"}), 2, "is always -a 3 here"},
    {"LongOptionOfNcclTestsThatIsFixedHere", bench({"--parallel_init=1"}), 2, "is always -p 1 here"},
    {"CheckWithAValueAsForNcclTests", bench({"--check", "0"}), 2, "'0' of 'bench'; --check takes no value"},
    {"LongRanksAsForMpirun", bench({"--np", "2"}), 2, "'--np' of 'bench'; what mpirun calls so is -n N"},
    {"LongRanksOfLaunchAsForMpirun",
     {"launch", "--np", "2", "--", "true"},
     2,
     "what mpirun calls so is -n N"},
    {"PredictWithoutAReport", bench({"--predict", "8"}), 2, "--predict needs --from, a report of 2 GPUs"},
    {"PredictForOneGpu", {"bench", "--from", "x.json", "--predict", "1"}, 2, "--predict"},
    {"RanksAsForMpirun", bench({"-np", "2"}), 2, "--ranks: what mpirun calls -np is -n N"},
    {"OptionOfNcclTestsWithoutACollective",
     {"bench", "-b", "8", "-e", "128M"},
     2,
     "is --sizes FIRST:LAST:FACTOR"},
    {"LongOptionOfNcclTests", bench({"--datatype=half"}), 2, "what nccl-tests calls so is --type TYPE"},
    {"UnknownRequirement", {"doctor", "--require", "tpu"}, 2, "'tpu'; known: host cuda"},
    {"UnknownOptionOfAll", {"--versoin"}, 2, "unknown option '--versoin': did you mean '--version'?"},
    {"UnknownOptionInPlaceOfARequiredOne",
     {"launch", "--rnaks", "2", "--", "true"},
     2,
     "unknown option '--rnaks' of 'launch': did you mean '--ranks'?"},
    {"UnknownOptionAndAnArgumentMissing", {"compare", "a", "--fial"}, 2, "did you mean '--fail'?"},
    {"FlagWithAValue", bench({"--in-place=maybe"}), 2, "--in-place takes no value, got 'maybe'"},
    {"OptionsAfterTheEndOfOptions",
     {"bench", "--", "all-reduce", "--sizes", "4"},
     2,
     "'--sizes' of 'bench' is no option after '--'; leave out the '--'"},
    {"ArgumentTooMany", bench({"twice"}), 2, "unexpected argument 'twice' of 'bench'"},
    {"HelpAboutNothing", {"help", "tpoo"}, 2, "did you mean 'topo'?"},
    {"NoCollective", {"bench"}, 2, "collective"},
    {"UnknownCollective", {"bench", "all_gahter"}, 2, "'all_gahter'; known: all-reduce, all-gather"},
    {"UnknownCollectiveIsGuessed", {"bench", "alreduce"}, 2, "did you mean 'all-reduce'?"},
    {"SizeZero", bench({"--sizes", "0"}), 2, "--sizes: '0' names a size of no bytes"},
    {"SizeZeroAmongOthers", bench({"--sizes", "4K,0"}), 2, "a size of no bytes"},
    {"SizeMissing", bench({"--sizes", "4K,,8K"}), 2, "--sizes: ''"},
    {"SizeBelowABlock", bench_of("all-gather", {"--device", "host", "--ranks", "4", "--sizes", "15"}), 2,
     "15 bytes hold no element of f32 for each of 4 blocks; use 16 or more"},
    {"SizesOfABarrier", bench_of("barrier", {"--sizes", "4K"}), 2, "--sizes makes no sense for barrier"},
    {"TuneSizeZero", {"tune", "--sizes", "0,4K"}, 2, "a size of no bytes"},
    {"UnknownBinding", bench({"--bind", "socket"}), 2,
     "--bind: unknown value 'socket'; known: auto none cores numa"},
    {"RepeatZero", bench({"--repeat", "0"}), 2, "--repeat: Value 0 not in range 1 to 1000"},
    {"TuneSizeBelowAnElement",
     {"tune", "--device", "host", "--ranks", "2", "--sizes", "1"},
     2,
     "use 2 or more"},
    {"TuneSizeBelowAnElementOfAType",
     {"tune", "--device", "host", "--ranks", "2", "--sizes", "4", "--types", "bf16,f64"},
     2,
     "4 bytes hold no element of f64"},
    {"TuneOutWithoutFile", {"tune", "--out", ""}, 2, "--out: needs a file name, or '-'"},
    {"BenchJsonEmpty", bench({"--json", ""}), 2, "--json: needs a file name, or '-'"},
    {"BenchHtmlEmpty", bench({"--html="}), 2, "--html"},
    {"CompareJsonEmpty", {"compare", "a", "b", "--json", ""}, 2, "--json: needs a file name"},
    {"TopoSvgEmpty", {"topo", "--svg", ""}, 2, "--svg: needs a file name"},
    {"CompareOverAReport", {"compare", "a", "b", "--json", "./b"}, 2, "--json 'b' would replace the report"},
    {"TwoDocumentsInAFile", bench({"--json", "/tmp/r", "--html", "/tmp/../tmp/r"}), 2,
     "would both write to the same file"},
    {"TopoTwoDocumentsInAFile",
     {"topo", "--json", "t", "--svg", "t"},
     2,
     "would both write to the same file"},
    {"TwoDocumentsOnStdout", bench({"--json", "-", "--html", "-"}), 2, "both write to standard output"},
    {"CompareOneReport", {"compare", "a.json"}, 2, "B is missing"},
    {"CompareWhatIsNotThere", {"compare", "/nonexistent/a", "/nonexistent/b"}, 1, "'/nonexistent/a'"},
    {"CompareWhatIsNoReport", {"compare", "/etc/passwd", "/etc/passwd"}, 1, "is no report of 'onehop bench"},
    {"CompareADirectory", {"compare", "/tmp", "/tmp"}, 1, "cannot read '/tmp': it is a directory"},
    {"CompareWithoutEnd",
     {"compare", "/dev/zero", "/dev/zero"},
     1,
     "cannot read '/dev/zero': it is a device"},
    {"CompareThresholdTwice",
     {"compare", "a", "b", "--threshold", "5", "--threshold", "6"},
     2,
     "--threshold is given more than once"},
    {"CompareThresholdWithoutValue",
     {"compare", "a", "b", "--threshold"},
     2,
     "--threshold needs a value, PERCENT"},
    {"CompareThresholdNan", {"compare", "a", "b", "--threshold", "nan"}, 2, "--threshold: 'nan'"},
    {"CompareThresholdNoNumber",
     {"compare", "a", "b", "--threshold", "x"},
     2,
     "--threshold: 'x' is not a percentage from 0 to 1000"},
    {"TopoJsonUnwritable", {"topo", "--json", "/nonexistent/t.json"}, 1, "'/nonexistent/t.json'"},
    {"DoctorJsonUnwritable", {"doctor", "--json", "/nonexistent/d.json"}, 1, "'/nonexistent/d.json'"},
    {"OpWhereNothingIsReduced", bench_of("all-gather", {"--op", "sum"}), 2,
     "--op makes no sense for all-gather"},
    {"RootWhereThereIsNone", bench({"--root", "0"}), 2,
     "--root makes no sense for all-reduce; it is for broadcast"},
    {"RootNoNumber", bench_of("gather", {"--root", "-1"}), 2, "--root: Value -1 not in range 0 to 63"},
    {"RootThatIsNoRank", bench_of("reduce", {"--device", "host", "--ranks", "3", "--root", "3"}), 2,
     "--root 3 but there are 3 ranks"},
    {"InPlaceAllToAll", bench_of("all-to-all", {"--in-place"}), 2,
     "--in-place makes no sense for all-to-all"},
    {"DependentBroadcast", bench_of("broadcast", {"--mode", "dependent"}), 2,
     "--mode dependent makes no sense for broadcast; it is for all-reduce, all-to-all"},
    {"AlgorithmOfScatter", bench_of("scatter", {"--algorithm", "two-shot"}), 2,
     "--algorithm makes no sense for scatter; it is for all-reduce, reduce"},
    {"ColdReduceScatterInPlace", bench_of("reduce-scatter", {"--cold", "--in-place"}), 2,
     "--cold needs calls that share no data"},
    {"NoRank", bench({"--ranks", "0"}), 2, "--ranks: Value 0 not in range 1 to 64"},
    {"IsolatedOneRank", bench({"--ranks", "1", "--mode", "isolated"}), 2, "needs at least 2 ranks"},
    {"SixtyFiveRanks", bench({"--ranks", "65"}), 2, "--ranks: Value 65 not in range 1 to 64"},
    {"RanksNoNumber", bench({"--ranks", "four"}), 2, "--ranks: Value four not in range 1 to 64"},
    {"SizeWithUnknownUnit", bench({"--sizes", "12Q"}), 2, "'12Q'"},
    {"SizeRangeBackwards", bench({"--sizes", "8K:1K"}), 2, "8K:1K"},
    {"SizeEmpty", bench({"--sizes", ""}), 2, ""},
    {"UnknownType", bench({"--type", "f31"}), 2, "'f31'; known: f16 bf16 f32"},
    {"UnknownOp", bench({"--op", "mean"}), 2, "'mean'; known: sum"},
    {"FactorOfSum", bench({"--factor", "2"}), 2,
     "--factor makes no sense for --op sum; it is for premul_sum"},
    {"FactorNoNumber", bench({"--op", "premul_sum", "--factor", "1/3"}), 2,
     "--factor: '1/3' is not a finite number"},
    {"FactorNotFinite", bench({"--op", "premul_sum", "--factor", "inf"}), 2,
     "--factor: 'inf' is not a finite number"},
    {"FactorNan", bench({"--op", "premul_sum", "--factor", "nan"}), 2,
     "--factor: 'nan' is not a finite number"},
    {"FactorTooLarge", bench({"--device", "host", "--op", "premul_sum", "--factor", "1e39"}), 2,
     "--factor 1e+39 makes sums of 4 ranks leave the range of f32"},
    {"PeerOfPremultipliedSum", bench({"--op", "premul_sum", "--peer", "nccl"}), 2, "NCCL scales"},
    {"UnknownAlgorithm", bench({"--algorithm", "ring"}), 2, "'ring'; known: auto one-shot two-shot"},
    {"UnknownBuffers", bench({"--buffers", "fast"}), 2, "'fast'; known: ordinary symmetric registered"},
    {"UnknownDevice", bench({"--device", "tpu"}), 2, "'tpu'; known: auto host cuda"},
    {"UnknownMode", bench({"--mode", "fast"}), 2, "'fast'; known: chain dependent isolated eager"},
    {"UnknownPeer", bench({"--peer", "gloo"}), 2, "'gloo'; known: nccl, NAME=LIBRARY"},
    {"PeerWithoutLibrary", bench({"--peer", "new="}), 2, "'new=' names no library after the '='"},
    {"PeerWithOurName", bench({"--peer", "onehop=/lib"}), 2, "'onehop=/lib' names an NCCL 'onehop'"},
    {"PeerWithTheNameOfWindows", bench({"--peer", "a-sym=/lib"}), 2, "no -sym at the end"},
    {"PeerTwice", bench({"--peer", "nccl", "--peer", "nccl=/lib"}), 2, "--peer names 'nccl' twice"},
    {"CallsZero", bench({"--calls", "0"}), 2, "--calls: Value 0 not in range 1 to 10000"},
    {"ColdInPlace", bench({"--cold", "--in-place"}), 2, "--cold needs calls that share no data"},
    {"ColdDependent", bench({"--cold", "--mode", "dependent"}), 2, "--cold needs calls that share no data"},
    {"DependentProduct", bench({"--mode", "dependent", "--op", "prod"}), 2, "--op prod"},
    {"ModeOfHostRanks", bench({"--device", "host", "--mode", "eager"}), 2, "--mode is for GPUs"},
    {"CallsOfHostRanks", bench({"--device", "host", "--calls", "9"}), 2, "--calls is for GPUs"},
    {"PartsOfHostRanks", bench({"--device", "host", "--parts", "2"}), 2, "--parts is for GPUs"},
    {"PartsZero", bench({"--parts", "0"}), 2, "--parts: Value 0 not in range 1 to 256"},
    {"PartsOfABroadcast", bench_of("broadcast", {"--parts", "2"}), 2,
     "--parts makes no sense for broadcast; it is for all-reduce"},
    {"ColdHostRanks", bench({"--device", "host", "--cold"}), 2, "--cold is for GPUs"},
    {"RegisteredBuffersOfHostRanks", bench({"--device", "host", "--buffers", "registered"}), 2,
     "--buffers registered is for GPUs"},
    {"PeerOfHostRanks", bench({"--device", "host", "--peer", "nccl"}), 2, "--peer is for GPUs"},
    {"WarmupNegative", bench({"--warmup", "-1"}), 2, "--warmup: Value -1 not in range 0 to 1000000"},
    {"ItersZero", bench({"--iters", "0"}), 2, "--iters: Value 0 not in range 1 to 100000"},
    {"ItersNoNumber", bench({"--iters", "ten"}), 2, "--iters: Value ten not in range 1 to 100000"},
    {"JsonUnwritable", bench({"--json", "/nonexistent/r.json"}), 1, "'/nonexistent/r.json'"},
    {"HtmlIsADirectory", bench({"--html", "/tmp"}), 1, "'/tmp'"},
    {"JsonWithoutFile", bench({"--json"}), 2, "--json"},
    {"TuneOneRank", {"tune", "--ranks", "1"}, 2, "--ranks: Value 1 not in range 2 to 64"},
    {"TuneUnknownType", {"tune", "--types", "bf16,f31"}, 2, "'f31'; known: f16 bf16 f32"},
    {"TuneNoType", {"tune", "--types", ""}, 2, "type ''"},
    {"TuneUnknownDevice", {"tune", "--device", "tpu"}, 2, "'tpu'"},
    {"TuneSizeRangeBackwards", {"tune", "--sizes", "8K:1K"}, 2, "8K:1K"},
    {"TuneItersZero", {"tune", "--iters", "0"}, 2, "--iters: Value 0 not in range 1 to 100000"},
    {"TuneUnknownCollective", {"tune", "--collectives", "all_gahter"}, 2, "did you mean 'all-gather'?"},
    {"TuneNoCollective",
     {"tune", "--collectives", ""},
     2,
     "--collectives: unknown value ''; known: all-reduce"},
    {"TuneCollectiveWithoutAChoice",
     {"tune", "--device", "host", "--collectives", "all-gather"},
     2,
     "all-gather has no choice of algorithms between host ranks; known: all-reduce, reduce"},
    {"TuneUnknownBuffers", {"tune", "--buffers", "fast"}, 2, "'fast'; known: any symmetric both"},
    {"TuneBuffersOfHostRanks",
     {"tune", "--device", "host", "--buffers", "both"},
     2,
     "--buffers both is for GPUs"},
    {"TuneSizeOfNoMachine", {"tune", "--device", "host", "--sizes", "1025T"}, 2, "no machine has"},
    {"TuneLinksOfAMeasurement", {"tune", "--links", "pcie"}, 2, "--links is for --show and --explain"},
    {"TuneTableOfAMeasurement", {"tune", "--tuning", "x"}, 2, "--tuning is for --show and --explain"},
    {"TuneSymmetricOfAMeasurement", {"tune", "--symmetric"}, 2, "--symmetric is for --explain"},
    {"TuneShowSizes",
     {"tune", "--show", "--sizes", "4K"},
     2,
     "--sizes is for measurements; leave out --show"},
    {"TuneShowUnknownLinks", {"tune", "--show", "--links", "x"}, 2, "'x'; known: nvlink pcie"},
    {"TuneShowLinksOfHostRanks",
     {"tune", "--show", "--device", "host", "--links", "pcie"},
     2,
     "add --device cuda"},
    {"TuneShowNineGpus",
     {"tune", "--show", "--device", "cuda", "--ranks", "9"},
     2,
     "--ranks 9: a group has at most 8 GPUs"},
    {"TuneShowNoFile", {"tune", "--show", "--tuning", "/nonexistent"}, 1, "'/nonexistent' does not exist"},
    {"TuneShowUnwritable",
     {"tune", "--show", "--device", "host", "--json", "/nonexistent/t"},
     1,
     "'/nonexistent/t'"},
    {"TuneShowAndExplain",
     {"tune", "--show", "--explain", "all-reduce", "4K", "bf16"},
     2,
     "--show makes no sense with --explain"},
    {"TuneExplainTwoWords", {"tune", "--explain", "all-reduce", "4K"}, 2, "--explain: "},
    {"TuneExplainNoSize",
     {"tune", "--explain", "all-reduce", "4X", "bf16"},
     2,
     "--explain: '4X' is not a size"},
    {"TuneExplainNoType", {"tune", "--explain", "all-reduce", "4K", "f31"}, 2, "'f31'; known: f16"},
    {"TuneExplainNoCollective", {"tune", "--explain", "reduc", "4K", "f32"}, 2, "did you mean 'reduce'?"},
    {"TuneUnwritable", {"tune", "--device", "host", "--out", "/nonexistent/t"}, 1, "'/nonexistent/t'"},
    {"LaunchWithoutRanks", {"launch", "--", "true"}, 2, "--ranks"},
    {"LaunchZeroRanks", {"launch", "-n", "0", "--", "true"}, 2, "--ranks: Value 0 not in range 1 to 64"},
    {"LaunchTooManyRanks", {"launch", "-n", "65", "--", "true"}, 2, "--ranks: Value 65 not in range 1 to 64"},
    {"LaunchRanksNoNumber", {"launch", "-n", "x", "--", "true"}, 2, "--ranks: Value x not in range 1 to 64"},
    {"LaunchRanksAsForMpirun", {"launch", "-np", "2", "--", "true"}, 2, "what mpirun calls -np is -n N"},
    {"LaunchLogDirEmpty",
     {"launch", "-n", "2", "--log-dir", "", "--", "true"},
     2,
     "--log-dir: needs the name"},
    {"LaunchNoProgram", {"launch", "-n", "2"}, 2, "command"},
    {"LaunchBadTime", {"launch", "-n", "2", "--timeout-kill", "5q", "--", "true"}, 2, "'5q'"},
    {"LaunchUnknownBinding",
     {"launch", "-n", "2", "--bind", "socket", "--", "true"},
     2,
     "--bind: unknown value 'socket'; known: none cores numa"},
    {"LaunchNegativeTime", {"launch", "-n", "2", "--timeout-kill=-1s", "--", "true"}, 2, "'-1s'"},
    {"NcclRunNoProgram", {"nccl-run"}, 2, "command"},
    {"NcclRunUnknownMode",
     {"nccl-run", "--mode", "fast", "--", "true"},
     2,
     "--mode: unknown value 'fast'; known: auto alone off"},
    {"P2pUnknownOption", {"p2p-check", "--fast"}, 2, "--fast"},
    {"P2pDeviceNoNumber", {"p2p-check", "--devices", "0,x"}, 2, "--devices: 'x' is no device"},
    {"P2pDeviceNegative", {"p2p-check", "--devices=-1,0"}, 2, "--devices: '-1' is no device; write numbers"},
    {"P2pDeviceEmpty", {"p2p-check", "--devices", ""}, 2, "--devices: '' is no device"},
    {"TopoDeviceEmpty", {"topo", "--devices="}, 2, "--devices"},
    {"P2pOneDeviceTwice", {"p2p-check", "--devices", "3,3"}, 2, "only device 3"},
    {"P2pOneDevice", {"p2p-check", "--devices", "3"}, 2, "only device 3"},
    {"P2pSizeWithUnknownUnit", {"p2p-check", "--size", "12Q"}, 2, "'12Q'"},
    {"P2pSizeZero", {"p2p-check", "--size", "0"}, 2, "'0'"},
    {"P2pSizeOdd", {"p2p-check", "--size", "1000001"}, 2, "'1000001' is not a multiple of 16"},
    {"P2pTimeoutZero", {"p2p-check", "--timeout", "0"}, 2, "--timeout: '0'"},
    {"P2pTimeoutNoTime", {"p2p-check", "--timeout", "nan"}, 2, "--timeout: 'nan'"},
    {"P2pTimeoutUnknownUnit", {"p2p-check", "--timeout", "5h"}, 2, "'5h'"},
    {"P2pJsonWithoutFile", {"p2p-check", "--json", ""}, 2, "--json: needs a file name"},
    {"P2pJsonUnwritable", {"p2p-check", "--json", "/nonexistent/p.json"}, 1, "'/nonexistent/p.json'"},
    {"DoctorUnknownOption", {"doctor", "--fix"}, 2, "--fix"},
};
void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.name;
}

INSTANTIATE_TEST_SUITE_P(Mistakes, Usage, ::testing::ValuesIn(kMistakes),
                         [](const auto& mistake) { return std::string(mistake.param.name); });

TEST(UsageInAJob, LauncherVariablesThatMakeNoSenseAreNamed) {
  CommandOptions options;
  options.environment = {{"RANK", "7"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "1"}};
  const Result result = run(bench({}), options);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(lines_of(result.err), SizeIs(1));
  EXPECT_THAT(result.err, HasSubstr("RANK='7'"));
}

TEST(UsageOfGpus, CudaWithoutAGpuIsOneLineWithTheReason) {
  CommandOptions options;
  options.environment = {{"CUDA_VISIBLE_DEVICES", ""}};  // wherever this test runs
  for (const auto& arguments : {bench({"--device", "cuda"}), bench({"--device", "cuda", "--threads"})}) {
    const Result result = run(arguments, options);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(lines_of(result.err), SizeIs(1));
    EXPECT_THAT(result.err, HasSubstr("--device cuda: no GPU: "));
    EXPECT_EQ(result.out, "");
  }
}

TEST(UsageOfGpus, AShownTableNeedsTheNumberOfGpusWhereThereIsNone) {
  CommandOptions options;
  options.environment = {{"CUDA_VISIBLE_DEVICES", ""}};
  const Result result = run({"tune", "--show", "--device", "cuda"}, options);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(lines_of(result.err), SizeIs(1));
  EXPECT_THAT(result.err, HasSubstr("--ranks says how many GPUs a group has"));
}

TEST(UsageInAJob, RanksMustMatchTheJob) {
  const Result result =
      run({"launch", "-n", "2", "--tag-output", "--", ONEHOP_COMMAND, "bench", "all-reduce", "--ranks", "3"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--ranks 3"));
}

TEST(UsageInAJob, ARuntimeDirectoryThatCannotBeUsedIsNamed) {
  CommandOptions options;
  options.environment = {{"ONEHOP_RUNTIME_DIR", "/nonexistent"}};
  const Result result = run({"launch", "-n", "2", "--", "true"}, options);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(lines_of(result.err), SizeIs(1));
  EXPECT_THAT(result.err, HasSubstr("/nonexistent"));
}

TEST(FullDisk, FailsWhateverWritesToStandardOutput) {
  const std::vector<std::string> commands[] = {
      {"--version"},
      {"--help"},
      {"help", "environment"},
      {"help", "bench"},
      {"doctor"},
      {"topo"},
      bench({"--device", "host", "--ranks", "2", "--sizes", "4K", "--repeat", "1"}),
      bench({"--device", "host", "--ranks", "2", "--sizes", "4K", "--repeat", "1", "--threads"}),
      bench({"--device", "host", "--ranks", "2", "--sizes", "4K", "--repeat", "1", "--json", "-"}),
      {"launch", "-n", "2", "--tag-output", "--", "sh", "-c", "echo text"},
  };
  for (const std::vector<std::string>& arguments : commands) {
    std::string line = ONEHOP_COMMAND;
    for (const std::string& each : arguments) line += " '" + each + "'";
    CommandOptions shell;
    shell.program = "/bin/sh";
    const Result result = run({"-c", line + " > /dev/full"}, shell);
    EXPECT_EQ(result.exit_code, 1) << line;
    EXPECT_THAT(lines_of(result.err), SizeIs(1)) << line;
    EXPECT_THAT(result.err, StartsWith("onehop: cannot write the output")) << line;
    EXPECT_THAT(result.err, HasSubstr("ENOSPC")) << line;
  }
}

using FullDiskFiles = CommandTest;

TEST_F(FullDiskFiles, WhatWasThereIsKept) {
  const std::string file = base_ / "earlier";
  const std::string beside = base_ / "earlier.partial";
  CommandOptions shell = options_;
  shell.program = "/bin/sh";
  for (const std::string arguments :
       {"topo --svg", "topo --json", "tune --show --device host --ranks 2 --out"}) {
    for (const std::string& path : {file, beside}) std::ofstream(path) << "earlier content";
    // With a limit of 0 bytes on files, as on a full disk.
    const std::string line =
        "trap '' XFSZ; ulimit -f 0; exec " ONEHOP_COMMAND " " + arguments + " '" + file + "'";
    const Result result = run({"-c", line}, shell);
    EXPECT_EQ(result.exit_code, 1) << line;
    EXPECT_THAT(result.err, StartsWith("onehop: cannot write '" + file + "'")) << line;
    EXPECT_EQ(read(file), "earlier content") << line;
    EXPECT_EQ(run({"-c", ONEHOP_COMMAND " " + arguments + " '" + file + "'"}, shell).exit_code, 0);
    EXPECT_NE(read(file), "earlier content") << line;
    EXPECT_EQ(read(beside), "earlier content") << line;
  }
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(base_))
    files += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files, 2u) << "partial files were left";
}

TEST_F(FullDiskFiles, OfStandardOutputLosesNoFile) {
  CommandOptions shell = options_;
  shell.program = "/bin/sh";
  const std::string report = base_ / "report.json";
  const std::string measuring =
      "bench all-reduce --device host --ranks 2 --sizes 4K --repeat 1 --json '" + report + "'";
  ASSERT_EQ(run({"-c", ONEHOP_COMMAND " " + measuring}, shell).exit_code, 0);
  const std::string file = base_ / "written";
  for (const std::string& arguments :
       {std::string("doctor"), std::string("topo"), "compare '" + report + "' '" + report + "'"}) {
    std::filesystem::remove(file);
    const std::string line = ONEHOP_COMMAND " " + arguments + " --json '" + file + "' > /dev/full";
    EXPECT_EQ(run({"-c", line}, shell).exit_code, 1) << line;
    EXPECT_THAT(read(file), StartsWith("{")) << line;
  }
}

TEST(FullDisk, OfStandardErrorChangesNoExitCode) {
  CommandOptions shell;
  shell.program = "/bin/sh";
  const auto exit_code = [&](const std::string& arguments) {
    return run({"-c", ONEHOP_COMMAND " " + arguments + " 2> /dev/full"}, shell).exit_code;
  };
  EXPECT_EQ(exit_code("compare /nonexistent/a /nonexistent/b"), 1);
  EXPECT_EQ(exit_code("compare"), 2);
  EXPECT_EQ(exit_code("launch -n 2 -- sh -c 'exit 7'"), 7);
  EXPECT_EQ(exit_code("launch -n 2 -- /nonexistent/program"), 127);
  EXPECT_EQ(exit_code("tune --device host --ranks 2 --collectives all-reduce --sizes 4K --iters 2"), 0);
}

TEST(Help, TeachesEveryCommandWithExamplesAndSucceeds) {
  const Result top = run({"--help"});
  EXPECT_EQ(top.exit_code, 0);
  EXPECT_THAT(top.out, HasSubstr("Exit codes"));
  for (const char* command :
       {"bench", "compare", "tune", "topo", "p2p-check", "doctor", "launch", "nccl-run", "help"}) {
    EXPECT_THAT(top.out, HasSubstr(command));
    const Result result = run({command, "--help"});
    EXPECT_EQ(run({"help", command}).out, result.out);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_THAT(result.out, HasSubstr(std::string("onehop ") + command));
    EXPECT_THAT(result.out, HasSubstr("Examples:"));
    EXPECT_THAT(result.out, HasSubstr("Exit code"));
    for (const std::string& line : lines_of(result.out)) EXPECT_LE(line.size(), 120u) << line;
  }
}

TEST(Help, WithoutACommandIsThatOfAllAndOfTheEnvironmentEveryVariable) {
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
  const Result result = run({"help", "environment"});
  EXPECT_EQ(result.exit_code, 0);
  for (const Variable& each : variables())
    EXPECT_THAT(result.out, HasSubstr(std::string(each.name).append(" (")));
  EXPECT_THAT(result.out, HasSubstr("values: trace, debug, info, warn, error or off"));
}

TEST(Environment, NonsenseAndTypingErrorsAreWarnedOfOnceHoweverManyRanksThereAre) {
  CommandOptions options;
  options.environment = {{"ONEHOP_LOGS", "info"}, {"ONEHOP_CHECK", "maybe"}};
  const Result result = run(
      {"bench", "all-reduce", "--device", "host", "--ranks", "3", "--sizes", "4K", "--iters", "1"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(lines_of(result.err), ::testing::UnorderedElementsAre(
                                        HasSubstr("ONEHOP_LOGS; did you mean ONEHOP_LOG?"),
                                        HasSubstr("ONEHOP_CHECK='maybe' makes no sense; legal: 1 or 0")));
}

TEST(Help, VersionIsOneLine) {
  const Result result = run({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, ::testing::MatchesRegex("onehop 0\\.[0-9.]+( \\([0-9a-z-]+\\))?\n"));
  EXPECT_THAT(lines_of(result.out), SizeIs(1));
}

}  // namespace
}  // namespace onehop::test
