#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""acceptance_test.py: the verdicts of bench/nccl/acceptance.py and failures.py, on outputs of programs that succeed and of programs that fail. Needs
neither GPUs nor torch.
"""
import contextlib
import io
import sys
import tempfile
import time
import unittest
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
        self.assertEqual(verdicts.nccl_test_problems(ROWS + IN_PLACE_UNDEFINED + HYPERCUBE, 0), [])
        self.assertEqual(verdicts.nccl_test_problems(SKIPPED, 0), [])

    def test_wrong_elements_fail_also_where_the_exit_code_would_cancel_them(self):
        self.assert_wrong(verdicts.nccl_test_problems(ROWS.replace("      0     9.81", "     11     9.81"), -11),
                          "exit code -11", "11 wrong elements: 4 1 float sum -1 out of place")
        self.assert_wrong(verdicts.nccl_test_problems(ROWS.replace("      0     9.81", " 1.2e+06     9.81"), 0), "1.2e+06 wrong elements")

    def test_rows_that_are_missing_or_cut_off_fail(self):
        self.assert_wrong(verdicts.nccl_test_problems(HEADER, 0), "no row was checked")
        self.assert_wrong(verdicts.nccl_test_problems(ROWS.replace("       0", "     N/A"), 0), "no row was checked")
        self.assert_wrong(verdicts.nccl_test_problems(ROWS + "          64            16     float     sum      -1", 124),
                          "took too long", "1 rows cannot be read")
        self.assert_wrong(verdicts.nccl_test_problems(SKIPPED, 3), "exit code 3")

    def test_all_ranks_must_be_carried(self):
        self.assertEqual(verdicts.carried_problems(CARRIED, 2), [])
        self.assert_wrong(verdicts.carried_problems(CARRIED, 3), "rank 2 does not say")
        self.assertEqual(len(verdicts.carried_problems("NCCL: a communicator of 2 ranks is forwarded: no", 2)), 2)

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
        self.assert_wrong(verdicts.speed_problems(columns | {"onehop": {1024: (4.0, 4.0)}}, (0, 1), 16384, 0.05), "65536 bytes are missing")
        self.assert_wrong(verdicts.speed_problems(columns | {"onehop": {}}, (0, 1), 16384, 0.05), "onehop has no times")


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
    """Programs that print what they would if all was right, but for `bad`: a word of a command or of its variables, and the output and the
    code of those."""

    def __init__(self, folder, gpus, bad=None, answer=("", 1)):
        super().__init__(Namespace(
            ours=Path("libonehop_nccl.so"), nccl_tests=Path("tests"), nccl=Path("nccl"), newer_nccl=None, more_folders=[], python="python", gpus=gpus,
            rounds=1, training=["ddp", "mesh"], programs=list(acceptance.PROGRAMS), iterations=3, off_tolerance=0.05, slower=0.05, cycles=10, bursts=2,
            parts=list(acceptance.PARTS), out=Path(folder, "report.md")))
        self.bad, self.answer, self.commands = bad, answer, []

    def run(self, command, nccl=None, ours=True, folders=(), limit=acceptance.LIMIT, **variables):
        gpus = range(self.options.gpus)
        said = " ".join([*map(str, command), *(f"{name}={value}" for name, value in variables.items()), "" if ours else "bare"])
        self.commands.append(said)
        if self.bad is not None and self.bad in said:
            return self.answer
        if "failures.py" in said:
            kind = command[3]
            right = "".join(f"rank {rank}: right: yes\n" for rank in verdicts.survivors_of(kind, len(gpus)))
            return f"{right}exit codes {[int(code) for code in verdicts.expected_codes(kind, len(gpus))]}\n", 0
        if "--compare" in said:
            return "".join(f"rank {rank}: losses differ by 0.000e+00, updates by 0.000e+00\n" for rank in gpus), 0
        if "training.py" in said:
            return "".join(f"rank {rank}: loss 7.07 to 5.98, bits 9addebffb560, 15.5 ms\n" for rank in gpus), 0
        if "collectives.py" in said:
            return "".join(f"rank {rank}: right\n" for rank in gpus), 0
        carried = "".join(f"NCCL: rank {rank} of {len(gpus)}: the communicator is carried\n" for rank in gpus)
        return (OFF if "ONEHOP_NCCL=off" in said else carried) + ROWS, 0

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
        wrong = ROWS.replace("      0     9.81", "      3     9.81")
        slow = ROWS.replace("76.17", "96.17").replace("73.97", "93.97").replace("9.8", "19.8")
        for bad, answer, said in (
                ("gather_perf -t 2 -g 1 -R 2", (wrong, 0), "all_gather -t 2 -g 1 -R 2"),
                ("sendrecv_perf -t 2 -g 1 -b 4 -e 64M -f 2 ", ("", 124), "took too long"),
                ("ONEHOP_LOG=info", (ROWS, 0), "rank 0 does not say that its communicator is carried"),
                ("ONEHOP_NCCL=off", (OFF + slow, 0), "forwarding costs"),
                ("reduce_perf -t 2 -g 1 -b 1K -e 1G", (HEADER, 0), "onehop has no times"),
                ("collectives.py 2 eager", (RIGHT.replace("1: right", "1: WRONG: ['max']"), 1), "rank 1: WRONG: ['max']"),
                ("--compare", ("rank 0: losses differ by 1e-01, updates by 1e-01\n" * 2, 0), "rank 1 was not compared"),
                ("failures.py 2 kill", ("rank 0: WRONG: noticed nothing\nexit codes [1, -9]\n", 1), "noticed nothing"),
                ("failures.py 2 exit", ("rank 0: right: yes\nexit codes [0, None]\n", 1), "rank 1 did not end"),
                ("failures.py 2 cycles", (f"{RIGHT}exit codes [0, 0]\n", 1), "failures: cycles: exit code 1")):
            code, report, _ = self.judged(2, bad, answer)
            self.assertEqual(code, 1, bad)
            self.assertIn(said, report.partition("## Verdict")[2], bad)

    def test_a_part_that_fails_itself_is_wrong(self):
        code, report, _ = self.judged(2, "training.py", None)
        self.assertEqual(code, 1)
        self.assertIn("torch: the part itself failed", report)
        self.assertIn("## torch: failures", report, "the other parts still run")


if __name__ == "__main__":
    unittest.main()
