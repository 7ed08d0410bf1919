#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""acceptance_test.py: the verdicts of bench/nccl/acceptance.py and failures.py, on outputs of programs that succeed and of programs that fail. Needs
neither GPUs nor torch.
"""
import contextlib
import io
import math
import os
import re
import sys
import tempfile
import time
import unittest
import unittest.mock
from argparse import Namespace
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "nccl"))
import acceptance  # noqa: E402
import verdicts  # noqa: E402

HEADER = "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong\n"
ROWS = HEADER + """\
           4             1     float     sum      -1     9.83    0.00    0.00       0     9.81    0.00    0.00       0
    16777216       4194304     float     sum      -1    76.17  220.26  220.26       0    73.97  226.81  226.81       0
# Out of bounds values : 0 OK
"""
IN_PLACE_UNDEFINED = "        1024           512  bfloat16    none      -1     6.31    0.16    0.08       0     6.20    0.17    0.08     N/A\n"
HYPERCUBE = "        1024           256     float              -1     6.31    0.16    0.08       0     6.20    0.17    0.08       0\n"
SKIPPED = "nRanks 3 is not a power of 2, skipping\n"
CARRIED = "".join(f"info onehop[7] NCCL: rank {rank} of 2: the communicator is carried\n" for rank in (0, 1))
OFF = "info onehop[7] NCCL: ONEHOP_NCCL=off, forwarding everything to /lib/libnccl.so.2 (2.28.9)\n"
RIGHT = "rank 0: right\nrank 1: right\n"
DIED = ("DistBackendError: NCCL error in: NCCLUtils.cpp:94, remote process exited or there was a network error, NCCL version 2.28.9\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        "Last error:\nncclAllReduce: rank 1 died; noticed by rank 0 during all_reduce")
TWO_SIZES = verdicts.sweep_of("all_reduce", "-b 4 -e 16M -f 4194304 -d float -o sum", 2)  # those of ROWS
FAKE_TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2")
FAKE_OPERATIONS = ("sum", "prod", "max", "min", "avg", "mulsum")


def fake_rows(program, options, ranks):
    """As program of nccl-tests 2.19 prints them: sizes rounded to 16 bytes of each rank, and nothing checked in place where that is undefined."""
    words = options.split()
    given = dict(zip(words[::2], words[1::2]))
    begin, end = (int(each[:-1]) << {"K": 10, "M": 20, "G": 30}[each[-1]] if each[-1] in "KMG" else int(each) for each in (given["-b"], given["-e"]))
    kinds = FAKE_TYPES if given.get("-d") == "all" else (given.get("-d", "float"),)
    operations = ("",) if program == "hypercube" else ("none",)
    if program in ("all_reduce", "reduce_scatter", "reduce", "sendrecv"):
        operations = FAKE_OPERATIONS if given.get("-o") == "all" else (given.get("-o", "sum"),)
    roots = (-1,)
    if program in ("broadcast", "reduce", "gather", "scatter"):
        roots = range(ranks) if given.get("-r") == "-1" else (0,)
    checked = [" N/A" if given.get("-c") == "0" or place and program in ("alltoall", "alltoallv", "sendrecv") else "   0" for place in (0, 1)]
    lines = []
    for kind, operation, root in ((kind, operation, root) for kind in kinds for operation in operations for root in roots):
        size = begin
        while size <= end:
            shown = size if program in ("all_reduce", "broadcast", "reduce", "sendrecv") else size // (16 * ranks) * 16 * ranks
            time_of = 10 + size / 1e6
            lines.append(f"{shown:12}  {shown // 4:12}  {kind:>8}  {operation:>6}  {root:6}  {time_of:8.2f}    0.01    0.01 {checked[0]}  {time_of:8.2f}"
                         f"    0.01    0.01 {checked[1]}")
            size *= int(given.get("-f", "2"))
    return HEADER + "\n".join(lines) + "\n"


class NcclTests(unittest.TestCase):
    def assert_wrong(self, problems, *texts):
        for text in texts:
            self.assertIn(text, "; ".join(problems))

    def test_rows_of_all_programs_are_read(self):
        rows, unread = verdicts.rows_of(ROWS + IN_PLACE_UNDEFINED + HYPERCUBE)
        self.assertEqual([row.key[0] for row in rows], ["4", "16777216", "1024", "1024"])
        self.assertEqual(rows[1].times, (76.17, 73.97))
        self.assertEqual([row.wrong for row in rows], [(0, 0), (0, 0), (0, None), (0, 0)])
        self.assertEqual([row.key[3] for row in rows], ["sum", "sum", "none", None])
        self.assertEqual(unread, [])

    def test_right_rows_pass(self):
        self.assertEqual(verdicts.nccl_test_problems(ROWS, 0, TWO_SIZES), [])
        for program, kind, row in (("alltoall", "bfloat16", IN_PLACE_UNDEFINED), ("hypercube", "float", HYPERCUBE)):
            self.assertEqual(verdicts.nccl_test_problems(row, 0, verdicts.sweep_of(program, f"-b 1K -e 1K -f 2 -d {kind}", 2)), [])
        self.assertEqual(verdicts.nccl_test_problems(SKIPPED, 0, TWO_SIZES), [])

    def test_the_rows_of_a_whole_sweep_must_be_there(self):
        for ranks in (2, 3, 8):
            for program in acceptance.PROGRAMS:
                for options in (acceptance.ALL_TYPES, acceptance.SWEEP, *acceptance.OPTIONS):
                    sweep = verdicts.sweep_of(program, options, ranks)
                    self.assertEqual(verdicts.nccl_test_problems(fake_rows(program, options, ranks), 0, sweep), [], f"{program} {options} {ranks}")
                    one = "\n".join(fake_rows(program, options, ranks).splitlines()[:2])
                    self.assert_wrong(verdicts.nccl_test_problems(one, 0, sweep), "sweeps are not complete")

    def test_a_sweep_without_a_size_a_type_an_operation_or_a_root_fails(self):
        options = "-b 4 -e 16M -f 16 -d all -o all -r -1 -c 1"
        sweep, rows = verdicts.sweep_of("reduce", options, 2), fake_rows("reduce", options, 2).splitlines(keepends=True)
        self.assertEqual((sweep.sizes, sweep.distinct, len(rows)), (6, 5, 1 + 12 * 6 * 2 * 6))
        for missing, said in ((lambda words: words[0] == "1024", "144 of 144 sweeps are not complete, such as int8 sum root 0: 5 rows, 5 sizes of 6"),
                              (lambda words: words[2] == "half", "12 of 144 sweeps are not complete, such as half sum root 0: 0 rows"),
                              (lambda words: words[3] == "avg", "24 of 144 sweeps are not complete, such as int8 avg root 0: 0 rows"),
                              (lambda words: words[4] == "1", "72 of 144 sweeps are not complete, such as int8 sum root 1: 0 rows"),
                              (lambda words: words[:5] == ["4194304", "1048576", "double", "min", "1"], "1 of 144 sweeps")):
            self.assert_wrong(verdicts.nccl_test_problems("".join(row for row in rows if not missing(row.split())), 0, sweep), said)

    def test_rows_of_one_size_are_no_sweep(self):
        again = ROWS.replace("    16777216       4194304", "           4             1")
        self.assertEqual(TWO_SIZES.distinct, 1)
        self.assertEqual(verdicts.nccl_test_problems(again, 0, TWO_SIZES), [], "sizes below 32 bytes of each rank may be rounded")
        self.assert_wrong(verdicts.nccl_test_problems(again, 0, verdicts.sweep_of("all_reduce", "-b 1K -e 4M -f 4096", 2)), "2 rows, 1 sizes of 2")

    def test_every_row_must_be_checked(self):
        rows = ROWS.replace("      0     9.81", "    N/A     9.81").replace("0.00    0.00       0\n", "0.00    0.00     N/A\n")
        self.assert_wrong(verdicts.nccl_test_problems(rows, 0, TWO_SIZES), "1 rows were not checked")

    def test_wrong_elements_fail_also_where_the_exit_code_would_cancel_them(self):
        self.assert_wrong(verdicts.nccl_test_problems(ROWS.replace("      0     9.81", "     11     9.81"), -11, TWO_SIZES),
                          "exit code -11", "11 wrong elements: 4 1 float sum -1 out of place")
        self.assert_wrong(verdicts.nccl_test_problems(ROWS.replace("      0     9.81", " 1.2e+06     9.81"), 0, TWO_SIZES), "1.2e+06 wrong elements")

    def test_rows_that_are_missing_or_cut_off_fail(self):
        self.assert_wrong(verdicts.nccl_test_problems(HEADER, 0, TWO_SIZES), "no row was checked")
        self.assert_wrong(verdicts.nccl_test_problems(ROWS.replace("       0", "     N/A"), 0, TWO_SIZES), "no row was checked")
        self.assert_wrong(verdicts.nccl_test_problems(ROWS + "          64            16     float     sum      -1", 124, TWO_SIZES),
                          "took too long", "1 rows cannot be read")
        self.assert_wrong(verdicts.nccl_test_problems(SKIPPED, 3, TWO_SIZES), "exit code 3")

    def test_all_ranks_must_be_carried(self):
        self.assertEqual(verdicts.carried_problems(CARRIED, 2), [])
        self.assert_wrong(verdicts.carried_problems(CARRIED, 3), "rank 2 does not say")
        self.assertEqual(len(verdicts.carried_problems("NCCL: a communicator of 2 ranks is forwarded: no", 2)), 2)
        parts = CARRIED + CARRIED.replace("rank 0", "rank 2").replace("rank 1", "rank 3")
        self.assertEqual(len(verdicts.carried_problems(parts, 4)), 4, "those of 2 ranks are parts")

    def test_alone_says_so(self):
        self.assertEqual(verdicts.alone_problems("info onehop[7] NCCL: working alone: ONEHOP_NCCL=alone\n" + ROWS), [])
        self.assertEqual(verdicts.alone_problems(ROWS), ["nothing says that onehop works alone"])

    def test_forwarding_gives_the_same_rows_at_the_same_cost(self):
        slower = ROWS.replace("9.8", "19.8").replace("76.17", "86.17").replace("73.97", "83.97")
        self.assertEqual(verdicts.off_problems([ROWS, slower], [slower, ROWS], 0.05), ([], 1.0))
        self.assert_wrong(verdicts.off_problems([ROWS, ROWS], [slower, slower], 0.05)[0], "forwarding costs")
        self.assert_wrong(verdicts.off_problems([ROWS], [ROWS.replace("      0     9.81", "      1     9.81")], 0.05)[0], "not those of NCCL")
        self.assert_wrong(verdicts.off_problems([ROWS], [HEADER], 0.05)[0], "not those of NCCL")
        self.assert_wrong(verdicts.off_problems([HEADER], [HEADER], 0.05)[0], "no rows")

    def test_off_says_so_in_a_line(self):
        self.assertEqual(verdicts.off_line_problems(OFF), [])
        self.assert_wrong(verdicts.off_line_problems(CARRIED), "nothing says")
        self.assert_wrong(verdicts.off_line_problems("NCCL: ONEHOP_NCCL=off, forwarding everything to nothing: not found"), "forwards to nothing")

    def test_slower_than_nccl_fails_from_a_size_on(self):
        columns = {"NCCL": {1024: (5.0, 5.0), 65536: (10.0, 10.0)}, "newer": {1024: (6.0, 6.0), 65536: (9.0, 11.0)}}
        self.assertEqual(verdicts.speed_problems(columns | {"onehop": {1024: (9.0, 9.0), 65536: (9.4, 10.4)}}, (0, 1), 16384, 0.05), [])
        self.assert_wrong(verdicts.speed_problems(columns | {"onehop": {1024: (4.0, 4.0), 65536: (9.5, 9.0)}}, (0, 1), 16384, 0.05),
                          "65536 bytes out of place: 9.50 us, NCCL 9.00")
        self.assertEqual(verdicts.speed_problems(columns | {"onehop": {1024: (4.0, 4.0)}}, (0, 1), 16384, 0.05), ["65536 bytes are missing of onehop"])
        self.assert_wrong(verdicts.speed_problems(columns | {"onehop": {}}, (0, 1), 16384, 0.05), "onehop has no times")

    def test_sizes_that_any_column_lacks_and_times_that_are_none_fail(self):
        whole, short, nan = {1024: (5.0, 5.0), 65536: (10.0, 10.0)}, {1024: (5.0, 5.0)}, {1024: (5.0, 5.0), 65536: (float("nan"), 10.0)}

        def problems(nccl, newer, ours, places=(0, 1)):
            return verdicts.speed_problems({"NCCL": nccl, "newer": newer, "onehop": ours}, places, 16384, 0.05)
        self.assertEqual(problems(whole, whole, whole), [])
        self.assertEqual(problems(short, whole, whole), ["65536 bytes are missing of NCCL"])
        self.assertEqual(problems(whole, short, whole), ["65536 bytes are missing of newer"])
        self.assertEqual(problems(short, short, whole), ["65536 bytes are missing of NCCL", "65536 bytes are missing of newer"])
        self.assert_wrong(problems(whole, whole, nan), "65536 bytes out of place: nan is no time of onehop", "nan us, NCCL 10.00")
        self.assertEqual(problems(nan, whole, whole), ["65536 bytes out of place: nan is no time of NCCL"])
        self.assertEqual(problems(nan, nan, whole, (1,)), [], "out of place is not asked for")
        self.assertEqual(problems(whole, whole, whole | {1024: (0.0, 5.0)}), ["1024 bytes out of place: 0.0 is no time of onehop"])

    def test_times_are_medians_and_nan_is_kept(self):
        rounds = [ROWS.replace("76.17", each) for each in ("70.00", "90.00", "80.00")]
        self.assertEqual(verdicts.times_of(rounds), {4: [9.83, 9.81], 16777216: [80.0, 73.97]})
        for at in range(3):
            self.assertTrue(math.isnan(verdicts.times_of([*rounds[:at], ROWS.replace("76.17", "  nan"), *rounds[at + 1:]])[16777216][0]))

    def test_runs_that_are_timed_may_not_fail_either(self):
        self.assertEqual(verdicts.timed_problems(ROWS, 0, TWO_SIZES), [])
        self.assertEqual(verdicts.timed_problems(ROWS, 3, TWO_SIZES), ["exit code 3"])
        self.assertEqual(verdicts.timed_problems(ROWS, 124, TWO_SIZES), ["took too long"])
        self.assert_wrong(verdicts.timed_problems(ROWS + "          64            16     float", 0, TWO_SIZES), "1 rows cannot be read")
        self.assert_wrong(verdicts.timed_problems(ROWS.replace("    16777216 ", "# "), 0, TWO_SIZES), "1 of 1 sweeps are not complete")


class Torch(unittest.TestCase):
    assert_wrong = NcclTests.assert_wrong

    def test_every_rank_must_say_that_it_is_right(self):
        self.assertEqual(verdicts.collectives_problems(RIGHT, 0, 2), [])
        self.assert_wrong(verdicts.collectives_problems(RIGHT, 1, 2), "exit code 1")
        self.assert_wrong(verdicts.collectives_problems(RIGHT, 0, 3), "rank 2: says nothing")
        self.assert_wrong(verdicts.collectives_problems("rank 0: right\nrank 1: WRONG: ['max of 7']\n", 0, 2), "rank 1: WRONG: ['max of 7']")

    def runs(self, **changed):
        out = "rank 0: loss 7.07 to 5.98, bits 9addebffb560, 15.5 ms\nrank 1: loss 7.07 to 5.98, bits 1df155e01e2f, 16.2 ms\n"
        return {name: changed.get(name.replace(" ", "_"), (out, 0)) for name in ("onehop", "onehop again", "NCCL")}

    def test_training_is_equal_in_bits_from_run_to_run(self):
        self.assertEqual(verdicts.training_problems(self.runs(), 2), [])
        out = self.runs()["NCCL"][0]
        self.assert_wrong(verdicts.training_problems(self.runs(onehop_again=(out.replace("1df", "1de"), 0)), 2), "differ in bits")
        self.assert_wrong(verdicts.training_problems(self.runs(NCCL=("", 1)), 2), "NCCL: exit code 1", "NCCL: not one line of every rank")
        self.assert_wrong(verdicts.training_problems(self.runs(), 3), "not one line of every rank")

    def compared(self, loss, update):
        return "".join(f"rank {rank}: losses differ by {loss}, updates by {update}\n" for rank in range(2))

    def test_training_is_compared_with_nccl(self):
        self.assertEqual(verdicts.compared_problems(self.compared("0.000e+00", "0.000e+00"), 0, 2, bits=True), [])
        self.assertEqual(verdicts.compared_problems(self.compared("1.000e-06", "2.000e-04"), 0, 2, bits=False), [])
        self.assert_wrong(verdicts.compared_problems(self.compared("1.000e-06", "2.000e-04"), 0, 2, bits=True), "the bits are not NCCL's")
        self.assert_wrong(verdicts.compared_problems(self.compared("4.000e-05", "2.000e-04"), 0, 2, bits=False), "losses differ from NCCL's")
        self.assert_wrong(verdicts.compared_problems(self.compared("1.000e-06", "6.000e-03"), 0, 2, bits=False), "what was learned differs")
        self.assert_wrong(verdicts.compared_problems(self.compared("nan", "nan"), 0, 2, bits=False), "losses differ", "what was learned")
        self.assert_wrong(verdicts.compared_problems("", 1, 2, bits=False), "exit code 1", "rank 1 was not compared")


class Failures(unittest.TestCase):
    assert_wrong = NcclTests.assert_wrong

    def test_an_error_names_the_reason_and_the_rank_in_time(self):
        self.assertEqual(verdicts.error_problems("kill", 2, DIED, 0.02), [])
        self.assertEqual(verdicts.error_problems("exit", 2, DIED, 0.02), [])
        self.assertEqual(verdicts.error_problems("exit", 2, DIED.replace("rank 1 died; noticed", "rank 1 has left the group; seen"), 0.02), [])
        # torch aborts its communicators when a process exits
        self.assertEqual(verdicts.error_problems("exit", 2, DIED.replace("rank 1 died", "rank 1 aborted the group"), 0.02), [])
        self.assertEqual(verdicts.error_problems("abort", 2, DIED.replace("rank 1 died", "rank 0 aborted the group"), 0.02), [])

    def test_an_error_that_is_missing_late_or_another_one_fails(self):
        self.assertEqual(verdicts.error_problems("kill", 2, None, 20.0), ["noticed nothing"])
        self.assert_wrong(verdicts.error_problems("kill", 2, DIED, 5.1), "came after 5.1 s")
        self.assert_wrong(verdicts.error_problems("kill", 3, DIED, 0.02), "does not say 'rank 2 died'")
        self.assert_wrong(verdicts.error_problems("abort", 2, DIED, 0.02), "does not say 'rank 0 aborted the group'")
        self.assert_wrong(verdicts.error_problems("kill", 2, DIED.replace("rank 1 died", "rank 1 has left the group"), 0.02), "rank 1 died'")
        self.assert_wrong(verdicts.error_problems("kill", 2, DIED.replace("rank 1 died", "rank 11 died"), 0.02), "rank 1 died'")
        self.assert_wrong(verdicts.error_problems("kill", 2, DIED.replace("ncclRemoteError", "ncclInternalError"), 0.02), "not ncclRemoteError")

    def test_memory_must_come_back(self):
        before = verdicts.Memory(142000.0, 900.0, 60)
        self.assertEqual(verdicts.memory_problems(before, verdicts.Memory(141990.0, 950.0, 64), 50), [])
        self.assertEqual(verdicts.memory_problems(before, verdicts.Memory(143000.0, 800.0, 10), 50), [])
        self.assert_wrong(verdicts.memory_problems(before, verdicts.Memory(141870.0, 900.0, 60), 50), "130 MiB of GPU memory stay")
        self.assert_wrong(verdicts.memory_problems(before, verdicts.Memory(142000.0, 1000.0, 60), 50), "100 MiB of host memory stay")
        self.assert_wrong(verdicts.memory_problems(before, verdicts.Memory(142000.0, 900.0, 110), 50), "50 descriptors stay")

    def test_exit_codes_are_those_of_the_scenario(self):
        self.assertEqual(verdicts.code_problems("kill", [0, 0, -9]), [])
        self.assertEqual(verdicts.code_problems("cycles", [0, 0]), [])
        self.assertEqual(verdicts.code_problems("kill", [0, 0]), ["rank 1 ended with 0, not -9"])
        self.assertEqual(verdicts.code_problems("kill", [1, -9]), ["rank 0 ended with 1, not 0"])
        self.assertEqual(verdicts.code_problems("exit", [0, None]), ["rank 1 did not end"])
        self.assertEqual(verdicts.code_problems("abort", [-6, 0]), ["rank 0 ended with -6, not 0"])

    def test_a_run_is_right_only_if_its_ranks_said_so(self):
        kill = "rank 0: right: DistBackendError after 0.02 s\nexit codes [0, -9]\nkill: right\n"
        self.assertEqual(verdicts.failures_problems("kill", 2, kill, 0), [])
        cycles = RIGHT.replace("right", "right: 40 in 21.2 s") + "exit codes [0, 0]\n"
        self.assertEqual(verdicts.failures_problems("cycles", 2, cycles, 0), [])
        self.assert_wrong(verdicts.failures_problems("kill", 2, kill, 1), "exit code 1")
        self.assert_wrong(verdicts.failures_problems("kill", 2, kill.replace("right: Dist", "WRONG: noticed nothing"), 0), "noticed nothing")
        self.assert_wrong(verdicts.failures_problems("kill", 2, kill.replace("[0,", "[1,"), 0), "rank 0 ended with 1")
        self.assert_wrong(verdicts.failures_problems("kill", 3, kill.replace("[0,", "[0, 0,"), 0), "rank 1: says nothing")
        self.assert_wrong(verdicts.failures_problems("cycles", 2, cycles.replace("0]", "None]"), 0), "rank 1 did not end")
        self.assert_wrong(verdicts.failures_problems("cycles", 2, "", 124), "took too long", "not one exit code", "rank 0: says nothing")
        self.assert_wrong(verdicts.failures_problems("abort", 2, kill.replace("-9", "0"), 0), "rank 1: says nothing")


class FakeBench(acceptance.Bench):
    """Programs that print what they would if all was right, but for `bad`: words of a command or of its variables; `answer` is the output and the
    code of those, or makes them of the right ones."""

    def __init__(self, folder, gpus, bad=None, answer=("", 1)):
        super().__init__(Namespace(
            ours=Path("libonehop_nccl.so"), nccl_tests=Path("tests"), nccl=Path("nccl"), newer_nccl=None, more_folders=[], python="python", gpus=gpus,
            rounds=1, training=["ddp", "mesh"], programs=list(acceptance.PROGRAMS), iterations=3, off_tolerance=0.05, slower=0.05, cycles=10, bursts=2,
            parts=list(acceptance.PARTS), out=Path(folder, "report.md")))
        self.bad, self.answer, self.commands = bad, answer, []

    def run(self, command, nccl=None, ours=True, folders=(), limit=acceptance.LIMIT, **variables):
        said = " ".join([*map(str, command), *(f"{name}={value}" for name, value in variables.items()), "" if ours else "bare"])
        self.commands.append(said)
        right = self.right(said, command, [str(each) for each in command[1:]]), 0
        if self.bad is not None and self.bad in said:
            return self.answer(*right) if callable(self.answer) else self.answer
        return right

    def right(self, said, command, arguments):
        gpus = range(self.options.gpus)
        carried = "".join(f"NCCL: rank {rank} of {len(gpus)}: the communicator is carried\n" for rank in gpus)
        if os.environ.get("ONEHOP_NCCL") == "alone":
            carried = "NCCL: working alone: ONEHOP_NCCL=alone\n"
        carried = carried if "ONEHOP_LOG=info" in said else ""
        if "failures.py" in said:
            kind = command[3]
            right = "".join(f"rank {rank}: right: yes\n" for rank in verdicts.survivors_of(kind, len(gpus)))
            return f"{right}exit codes {[int(code) for code in verdicts.expected_codes(kind, len(gpus))]}\n{carried}"
        if "--compare" in said:
            return "".join(f"rank {rank}: losses differ by 0.000e+00, updates by 0.000e+00\n" for rank in gpus)
        if "training.py" in said:
            return "".join(f"rank {rank}: loss 7.07 to 5.98, bits 9addebffb560, 15.5 ms\n" for rank in gpus) + carried
        if "collectives.py" in said:
            return "".join(f"rank {rank}: right\n" for rank in gpus) + carried
        program = Path(command[0]).name.removesuffix("_perf")
        return fake_rows(program, " ".join(arguments[4:]), len(gpus)) + (OFF if "ONEHOP_NCCL=off" in said else carried)

    def judged(self):
        with contextlib.redirect_stdout(io.StringIO()):
            code = acceptance.judged(self)
        return code, self.options.out.read_text()


class Commands(unittest.TestCase):
    def run_shell(self, script, **more):
        with tempfile.TemporaryDirectory() as folder:
            return acceptance.Bench.run(FakeBench(folder, 2), ["sh", "-c", script], ours=False, **more)

    def test_output_and_exit_code_are_those_of_the_program_although_its_children_go_on(self):
        begin = time.monotonic()
        self.assertEqual(self.run_shell("echo $WHAT; echo error >&2; sleep 60 & exit 3", WHAT="said"), ("said\nerror\n", 3))
        self.assertLess(time.monotonic() - begin, 30)

    def test_a_line_of_the_log_does_not_cut_a_row(self):
        self.assertEqual(self.run_shell("printf begin; echo log >&2; echo end"), ("beginend\nlog\n", 0))

    def test_a_program_that_takes_too_long_ends_with_its_children_and_what_it_said_is_kept(self):
        out, code = self.run_shell("echo said; sleep 60 & echo $!; wait", limit=1)
        said, child = out.split()
        self.assertEqual((said, code), ("said", 124))
        for _ in range(100):
            status = Path("/proc", child, "stat")
            if not status.exists() or status.read_text().split()[2] == "Z":
                return
            time.sleep(0.1)
        self.fail("its child still runs")


class Options(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for each in ("ours.so", "nccl/libnccl.so.2", "newer/libnccl.so.2", *(f"tests/{program}_perf" for program in acceptance.PROGRAMS)):
            (self.folder / each).parent.mkdir(exist_ok=True)
            (self.folder / each).touch()

    def parsed(self, *more):
        at = self.folder
        return acceptance.parsed([f"--library={at}/ours.so", f"--nccl-tests={at}/tests", f"--nccl={at}/nccl", f"--newer-nccl={at}/newer", *more])

    def test_what_exists_is_taken(self):
        self.assertEqual(self.parsed().ours, self.folder / "ours.so")
        relative = self.parsed(f"--library={os.path.relpath(self.folder / 'ours.so')}", f"--nccl-tests={os.path.relpath(self.folder / 'tests')}")
        self.assertTrue(relative.ours.is_absolute() and relative.nccl_tests.is_absolute(), "ld.so looks elsewhere for names without a slash")
        (self.folder / "tests/gather_perf").unlink()
        self.parsed("--programs", "all_reduce")
        self.parsed("--parts", "torch", "failures")

    def test_what_does_not_exist_is_an_error(self):
        (self.folder / "tests/gather_perf").unlink()
        for more, said in ((["--library=/none.so"], "--library: /none.so is not a file"), ([f"--library={self.folder}"], "is not a file"),
                           ([], "there is no gather_perf"), (["--nccl-tests=/none"], "there is no all_reduce_perf"),
                           (["--nccl=/none"], "no libnccl.so.2 in /none"), ([f"--newer-nccl={self.folder}"], "no libnccl.so.2"),
                           (["--library-path", "/none"], "/none is not a folder")):
            errors = io.StringIO()
            with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as ended:
                self.parsed(*more)
            self.assertEqual(ended.exception.code, 2)
            self.assertIn(said, errors.getvalue())


class WholeRuns(unittest.TestCase):
    def judged(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            bench = FakeBench(folder, *arguments)
            return *bench.judged(), bench.commands

    def test_all_parts_pass_when_all_is_right(self):
        for gpus in (2, 4):
            code, report, commands = self.judged(gpus)
            self.assertEqual(code, 0, report)
            self.assertIn("Nothing is wrong.", report)
            self.assertEqual(gpus == 4, any("-t 2 -g 2" in each for each in commands))
            self.assertEqual(gpus == 4, any("training.py 4 mesh" in each for each in commands))
            self.assertEqual(gpus == 2, "mesh: left out" in report)
            for program in acceptance.PROGRAMS:
                for option in ("-R 1", "-R 2", "-G 3", "-u 1", "-c 5", "-a 3", "-z 1", "-r -1", "-m 2000", f"-t 1 -g {gpus}", "-d all -o all", "-f 2 "):
                    self.assertTrue(any(f"/{program}_perf" in each and option in each for each in commands), f"{program} {option}")

    def test_whatever_is_wrong_makes_the_verdict_false_and_is_said(self):
        def wrong(out, code):
            return out.replace("0.01    0 ", "0.01    3 ", 1), code

        def slow(out, code):
            return re.sub(r" (\d+\.\d+)(    0\.01    0\.01)", r" 9\1\2", out), code

        def forwarded(out, code):
            return out.replace("carried", "forwarded: no"), code

        def nan(out, code):
            return re.sub(r"(    65536 .*?)\d+\.\d\d( )", r"\1nan\2", out), code

        def without_the_last_row(out, code):
            lines = out.splitlines(keepends=True)
            del lines[max(at for at, line in enumerate(lines) if verdicts.ROW.match(line))]
            return "".join(lines), code
        for bad, answer, said in (
                ("gather_perf -t 2 -g 1 -R 2", wrong, "all_gather -t 2 -g 1 -R 2"),
                ("sendrecv_perf -t 2 -g 1 -b 4 -e 64M -f 2 ", ("", 124), "took too long"),
                ("scatter_perf -t 1 -g 2", forwarded, "scatter -t 1 -g 2 -c 1 -b 4 -e 64M -f 16 -d float -o all -n 3 -w 1: rank 0 does not say"),
                ("alltoallv_perf -t 2 -g 1 -R 2", forwarded, "rank 0 does not say that its communicator is carried"),
                ("sendrecv_perf -t 2 -g 1 -b 4 -e 64M -f 2 ", forwarded, "rank 1 does not say that its communicator is carried"),
                ("all_reduce_perf -t 2 -g 1 -b 4 -e 64M -f 2 ", without_the_last_row,
                 "1 of 72 sweeps are not complete, such as f8e5m2 mulsum: 24 rows, 24 sizes of 25"),
                ("all_reduce_perf -t 2 -g 1 -b 4 -e 4 -c 1", lambda out, code: (out, -6), "off: exit code -6"),
                ("ONEHOP_NCCL=off", slow, "off: all_reduce: forwarding costs"),
                (f"reduce_perf -t 2 -g 1 {acceptance.EAGER} ONEHOP_LOG=info", forwarded,
                 "all_reduce: onehop: rank 0 does not say that its communicator is carried"),
                ("gather_perf -t 2 -g 1 -b 1K -e 256M", lambda out, code: (out, 3), "all_gather: NCCL: exit code 3"),
                ("gather_perf -t 2 -g 1 -b 1K -e 256M", lambda out, code: (out, 3), "all_gather: onehop: exit code 3"),
                (f"gather_perf -t 2 -g 1 {acceptance.GRAPH} bare", without_the_last_row,
                 "268435456 bytes are missing of NCCL"),
                (f"sendrecv_perf -t 2 -g 1 {acceptance.EAGER} ONEHOP_LOG=info", slow, "sendrecv: 16384 bytes out of place"),
                (f"sendrecv_perf -t 2 -g 1 {acceptance.EAGER} ONEHOP_LOG=info", nan, "65536 bytes out of place: nan is no time"),
                ("collectives.py 2 eager", forwarded, "torch: made at once, groups split: rank 0 does not say that its communicator is carried"),
                ("training.py 2 ddp", forwarded, "torch: ddp: onehop again: rank 1 does not say that its communicator is carried"),
                ("failures.py 2 cycles", forwarded, "failures: cycles: rank 0 does not say"),
                ("reduce_perf -t 2 -g 1 -b 1K -e 1G", (HEADER, 0), "onehop has no times"),
                ("collectives.py 2 eager", (RIGHT.replace("1: right", "1: WRONG: ['max']"), 1), "rank 1: WRONG: ['max']"),
                ("--compare", ("rank 0: losses differ by 1e-01, updates by 1e-01\n" * 2, 0), "rank 1 was not compared"),
                ("failures.py 2 kill", ("rank 0: WRONG: noticed nothing\nexit codes [1, -9]\n", 1), "noticed nothing"),
                ("failures.py 2 exit", ("rank 0: right: yes\nexit codes [0, None]\n", 1), "rank 1 did not end"),
                ("failures.py 2 cycles", (f"{RIGHT}exit codes [0, 0]\n", 1), "failures: cycles: exit code 1")):
            code, report, _ = self.judged(2, bad, answer)
            self.assertEqual(code, 1, bad)
            self.assertIn(said, report.partition("## Verdict")[2], bad)

    def test_alone_nothing_is_forwarded_and_the_programs_say_so(self):
        with unittest.mock.patch.dict(os.environ, {"ONEHOP_NCCL": "alone"}):
            self.assertEqual(self.judged(2)[0], 0)
            code, report, _ = self.judged(2, "collectives.py", (RIGHT, 0))
            self.assertEqual(code, 1)
            self.assertIn("nothing says that onehop works alone", report.partition("## Verdict")[2])

    def test_a_part_that_fails_itself_is_wrong(self):
        code, report, _ = self.judged(2, "training.py", None)
        self.assertEqual(code, 1)
        self.assertIn("torch: the part itself failed", report)
        self.assertIn("## torch: failures", report, "the other parts still run")


if __name__ == "__main__":
    unittest.main()
