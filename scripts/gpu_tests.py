#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs the programs that need GPUs, runs them where there are some, and writes a report. See gpu-tests.sh.

What runs is what ctest knows under the label `cuda`, and `onehop p2p-check`. Starting CUDA takes seconds, so one process
runs the tests of a GoogleTest program one after another, each with a limit of its own. A test that fails, hangs or
crashes ends its process, and a fresh one goes on with the next. Standard library only.
"""

import argparse
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIST = "gpu-tests.json"
SANITIZER_TOOLS = ("memcheck", "initcheck", "synccheck")
SANITIZED = "CudaSmall."
SANITIZER_ERRORS = 99
GOOD = ("passed", "skipped")
TAIL_LINES = 40
CHAOS_SECONDS = "ONEHOP_CHAOS_SECONDS"  # in which cuda_chaos ends by itself, whatever hangs
START_LIMIT = 30  # of a program, before its first test and after its last
FILTER = "--gtest_filter="
EVENT = re.compile(r"\[ +(RUN|OK|FAILED|SKIPPED) +\] ([\w/]+\.[\w/]+)(?:, where .*?)?(?: \((\d+) ms\))?$")
# What a test says that forks ranks after another one has used CUDA in the same process (tests/support/gpu.cc).
NEEDS_OWN_PROCESS = "this process has used CUDA"
# What GoogleTest says around a test; what is left are the figures that the test itself prints.
CHATTER = re.compile(r"^(\[|Note: |Running main|\s*$|.*: Skipped$)")


# --- packing ---


def shown_tests(build):
    """ctest's tests with the label `cuda`, also on a machine without GPUs (cmake/OnehopGpuTests.cmake)."""
    shown = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1", "-L", "^cuda$"], check=True,
                           capture_output=True, text=True, env=os.environ | {"ONEHOP_GPU_TESTS": "all"})
    return json.loads(shown.stdout)["tests"]


def name_of(test):
    """As GoogleTest has it, or ctest."""
    filters = [argument.removeprefix(FILTER) for argument in test["command"] if argument.startswith(FILTER)]
    return filters[0] if filters else test["name"]


def limit_of(test):
    """Seconds that ctest gives it."""
    return next((each["value"] for each in test.get("properties", []) if each["name"] == "TIMEOUT"), 0)


def libraries_beside(program, build):
    """Shared libraries that the build put beside the program."""
    found = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
    paths = (Path(path) for path in re.findall(r"=> (/\S+)", found))
    return [path for path in paths if path.is_relative_to(build)]


def make_pack(build, chosen):
    """Returns (programs with those of their tests that match `chosen`, {name in the pack: file})."""
    files = {}

    def carried(argument):
        path = Path(argument)
        if not path.is_absolute() or not path.is_file():
            return argument
        if files.setdefault(path.name, path) != path:
            sys.exit(f"two files are called {path.name}: {path} and {files[path.name]}")
        if os.access(path, os.X_OK) and path.is_relative_to(build):
            for library in libraries_beside(path, build):
                files[library.name] = library
        return "./" + path.name

    programs = {}
    tests = shown_tests(build)
    if "cuda_test" not in [Path(argument).name for test in tests for argument in test["command"]]:
        sys.exit(f"{build} lacks programs: build the target cuda_programs there, with a CUDA toolkit")
    for test in tests:
        if not chosen.search(name_of(test)):
            continue
        command = [carried(argument) for argument in test["command"]]
        filters = [argument.removeprefix(FILTER) for argument in command if argument.startswith(FILTER)]
        if filters:
            programs.setdefault(command[0], {"command": command[:1], "tests": []})["tests"] += filters
        else:
            programs[test["name"]] = {"name": test["name"], "command": command, "limit": limit_of(test)}
    places = (build / "bin" / "onehop", build / "tools" / "onehop" / "onehop")
    tool = next((path for path in places if path.exists()), None)
    if tool is None:
        sys.exit(f"{build} lacks programs: build the target cuda_programs there, with a CUDA toolkit")
    if chosen.search("p2p-check"):
        programs["p2p-check"] = {"name": "p2p-check", "command": [carried(str(tool)), "p2p-check", "--quick"], "gpus": 2}
    return list(programs.values()), files


def pack(build, target, chosen):
    programs, files = make_pack(build, chosen)
    target.mkdir(parents=True, exist_ok=True)
    files |= {name: HERE / name for name in ("gpu-tests.sh", "gpu_tests.py")}
    for name, source in files.items():
        shutil.copy2(source, target / name)
    (target / LIST).write_text(json.dumps(programs, indent=1) + "\n")
    size = sum((target / name).stat().st_size for name in files)
    count = sum(len(program.get("tests", [0])) for program in programs)
    print(f"{target}: {count} tests of {len(programs)} programs, {len(files) + 1} files, {size / 2**20:.1f} MiB")


# --- running ---


class Process:
    """A program with all its children. What they print goes to a file: a pipe would be kept open by one that is stuck."""

    def __init__(self, command, folder, environment):
        self.output = tempfile.NamedTemporaryFile()
        self.reader = open(self.output.name, "rb", buffering=0)
        self.partial = b""
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT,
                                        cwd=folder, env=environment, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Ranks are in the process group of the test, or die with their launcher: none outlives it.
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            pass  # stuck in the driver: no signal helps
        self.reader.close()
        self.output.close()

    def ended(self):
        return self.process.poll() is not None

    def new_lines(self):
        *lines, self.partial = (self.partial + self.reader.read()).split(b"\n")
        return [line.decode(errors="replace") for line in lines]


def run_command(command, limit, environment, folder):
    """Returns (exit code or None, lines, seconds)."""
    began = time.monotonic()
    lines = []
    with Process(command, folder, environment) as process:
        while not process.ended() and time.monotonic() - began < limit:
            time.sleep(0.02)
        code = process.process.poll()
        lines = process.new_lines() + [process.partial.decode(errors="replace")]
    return code, lines, time.monotonic() - began


class Runner:
    def __init__(self, options, folder, environment, gpus):
        self.options = options
        self.gpus = gpus
        self.folder = folder
        self.environment = environment
        self.ends = time.monotonic() + options.budget
        self.results = []

    def left(self):
        return self.ends - time.monotonic()

    def add(self, program, name, status, seconds, lines, **more):
        result = {"program": program, "name": name, "status": status, "seconds": round(seconds, 2)} | more
        if status == "skipped":
            result["notes"] = [line for line in lines if not CHATTER.match(line)][-1:]
        elif status == "passed":
            result["notes"] = [line for line in lines if not CHATTER.match(line)][:20]
        else:
            result["tail"] = lines[-TAIL_LINES:]
        self.results.append(result)
        if status not in GOOD:
            print(f"{status}: {name} ({seconds:.1f} s)", flush=True)
            for line in lines[-12:]:
                print(f"    {line[:200]}", flush=True)

    def run_alone(self, program):
        """A program that is one test."""
        name = program["name"]
        if self.left() < 5:
            return self.add(name, name, "not run", 0, [])
        limit = min(max(self.options.test_timeout, program.get("limit", 0)), self.left())
        environment = self.environment
        if limit < int(environment.get(CHAOS_SECONDS, "300")) + 5:
            environment = environment | {CHAOS_SECONDS: str(max(30, int(limit - 5)))}
        code, lines, seconds = run_command(program["command"], limit, environment, self.folder)
        status = "timed out" if code is None else "failed" if code != 0 else "passed"
        if status == "passed" and any(line.startswith("skipped: ") for line in lines):
            status = "skipped"
        self.add(name, name, status, seconds, lines, exit=code)

    def run_googletest(self, program):
        waiting = list(program["tests"])
        while waiting and self.left() >= 5:
            before = len(waiting)
            waiting = self.run_some(program["command"], waiting)
            if len(waiting) == before:
                name = waiting.pop(0)
                self.add(program["command"][0], name, "failed", 0, ["the program ended without running it"])
        for name in waiting:
            self.add(program["command"][0], name, "not run", 0, [])

    def run_some(self, command, waiting):
        """Runs tests in one process, as many as go well. Returns those that are still to be run."""
        waiting = list(waiting)
        running = None  # the test, and what it has printed
        began = time.monotonic()
        lines = []
        with Process([*command, FILTER + ":".join(waiting)], self.folder, self.environment) as process:
            while True:
                ended = process.ended()  # before its last lines are read
                for line in process.new_lines():
                    lines.append(line)
                    event = EVENT.match(line)
                    if event is None:
                        continue
                    kind, name, _ = event.groups()
                    seconds = time.monotonic() - began
                    if kind == "RUN":
                        running, began, lines = name, time.monotonic(), []
                    elif name == running:
                        running, began = None, time.monotonic()
                        if kind == "SKIPPED" and any(NEEDS_OWN_PROCESS in each for each in lines):
                            continue  # the next process runs it, and what else forks
                        waiting.remove(name)
                        status = {"OK": "passed", "SKIPPED": "skipped", "FAILED": "failed"}[kind]
                        self.add(command[0], name, status, seconds, lines)
                        if status == "failed":
                            return waiting  # it may have left anything behind
                seconds = time.monotonic() - began
                if ended:
                    break
                if seconds > (self.options.test_timeout if running else START_LIMIT) or self.left() < 0:
                    break
                time.sleep(0.02)
            if running is not None:
                waiting.remove(running)
                code = process.process.poll()
                # What the budget cuts off has neither passed nor failed.
                cut_off = not ended and seconds <= self.options.test_timeout
                status = "failed" if ended else "not run" if cut_off else "timed out"
                if cut_off:
                    lines.append(f"the budget of {self.options.budget:.0f} s ended it after {seconds:.1f} s")
                self.add(command[0], running, status, seconds, lines, exit=code)
        return waiting


def sanitized_ranks(name, runner):
    """How a test runs under compute-sanitizer: 0, as it is; n, as n ranks that `onehop launch` starts. Kernels of one process
    run one after another there, so ranks that share a GPU have to be processes."""
    if name.endswith("/Launched"):
        return [2, 4]
    return [] if "ONEHOP_TEST_GPUS" in runner.environment else [0]


def run_sanitizer(programs, runner):
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.access(sanitizer, os.X_OK):
        print(f"no compute-sanitizer: {sanitizer}")
        return []
    results = []
    for tool in SANITIZER_TOOLS:
        for program in programs:
            for name in program.get("tests", []):
                if not name.startswith(SANITIZED):
                    continue
                for ranks in sanitized_ranks(name, runner):
                    results.append(sanitize(sanitizer, tool, program, name, ranks, runner))
    return results


def sanitize(sanitizer, tool, program, name, ranks, runner):
    command = [sanitizer, "--tool", tool, "--error-exitcode", str(SANITIZER_ERRORS)]
    if tool == "memcheck":
        command += ["--report-api-errors", "no"]  # the library asks for what a driver may refuse
    command += [*program["command"], FILTER + name]
    if ranks:
        command = ["./onehop", "launch", "-n", str(ranks), "--", *command]
    # With fewer GPUs than ranks they share them.
    environment = {"ONEHOP_TEST_GPUS": str(min(ranks, runner.gpus)), "ONEHOP_ALLOW_OVERLAPPING_DEVICES": "1"} if ranks else {}
    code, lines, seconds = run_command(command, runner.options.sanitizer_timeout, runner.environment | environment,
                                       runner.folder)
    status = {None: "timed out", 0: "passed", SANITIZER_ERRORS: "findings"}.get(code, "failed")
    summaries = [line for line in lines if "ERROR SUMMARY" in line]
    if status == "passed" and any(line.startswith("[  SKIPPED ]") for line in lines):
        status = "skipped"
    elif status == "passed" and len(summaries) != max(ranks, 1):
        status = "failed"  # a process that the tool has not seen
    result = {"tool": tool, "name": name + (f", {ranks} ranks" if ranks else ""), "status": status,
              "seconds": round(seconds, 2), "exit": code, "notes": summaries}
    if status not in GOOD:
        result["tail"] = lines[-TAIL_LINES:]
    print(f"compute-sanitizer {tool}, {result['name']}: {status} ({seconds:.1f} s)", flush=True)
    return result


# --- reporting ---


def describe_machine():
    def ask(field):
        try:
            asked = subprocess.run(["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"], capture_output=True,
                                   text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return []
        return [line.strip() for line in asked.stdout.splitlines() if line.strip()] if asked.returncode == 0 else []

    return {"gpus": ask("name"), "driver": (ask("driver_version") or ["none"])[0], "cpus": os.cpu_count(),
            "kernel": os.uname().release}


def suite_of(result):
    """"AllReduce CudaThreads2": what a line of the table is about."""
    name = result["name"].removeprefix("/")
    if "." not in name or result["program"] == name:
        return name
    suite, test = name.split(".", 1)
    return f"{suite} {test.split('/', 1)[1]}" if "/" in test else suite


def table(results):
    """Rows of (suite, {status: count}, seconds)."""
    rows = {}
    for each in results:
        counts, seconds = rows.setdefault(suite_of(each), ({}, 0.0))
        counts[each["status"]] = counts.get(each["status"], 0) + 1
        rows[suite_of(each)] = (counts, seconds + each["seconds"])
    return [(suite, ", ".join(f"{count} {status}" for status, count in counts.items()), seconds)
            for suite, (counts, seconds) in rows.items()]


def summary(report):
    machine = report["machine"]
    gpus = ", ".join(f"{machine['gpus'].count(name)} x {name}" for name in sorted(set(machine["gpus"]))) or "no GPU"
    totals = ", ".join(f"{count} {status}" for status, count in report["totals"].items())
    return (f"{report['date']}, commit {report['commit']}, {gpus}, driver {machine['driver']}, {machine['cpus']} CPUs: "
            f"{totals}; {report['seconds']:.0f} s")


def markdown(report):
    lines = ["# GPU tests", "", summary(report) + ".", "", "| tests | outcome | seconds |", "|---|---|---|"]
    lines += [f"| {suite} | {outcome} | {seconds:.1f} |" for suite, outcome, seconds in table(report["tests"])]
    lines += [f"| compute-sanitizer {each['tool']}, {each['name']} | {each['status']} | {each['seconds']:.1f} |"
              for each in report["sanitizer"]]
    lines.append("")
    results = report["tests"] + report["sanitizer"]
    for title, wanted in (("What went wrong", lambda each: each["status"] not in GOOD),
                          ("What tests printed", lambda each: each["status"] == "passed" and each["notes"])):
        chosen = [each for each in results if wanted(each)]
        if chosen:
            lines += [f"## {title}", ""]
        for each in chosen:
            lines += [f"### {each.get('tool', '')} {each['name']}: {each['status']}", "", "```",
                      *(each.get("tail") or each.get("notes", [])), "```", ""]
    reasons = {}
    for each in results:
        if each["status"] == "skipped":
            reason = " ".join(each["notes"])
            reasons[reason] = reasons.get(reason, 0) + 1
    if reasons:
        lines += ["## Skipped", "", *(f"- {count}: {reason}" for reason, count in reasons.items()), ""]
    return "\n".join(lines)


def run(options):
    folder = HERE
    if not (HERE / LIST).exists():  # in a checkout that was built on this machine
        folder = Path(tempfile.mkdtemp(prefix="onehop-gpu-tests-"))
        pack(options.build, folder, re.compile(options.filter or ""))
    programs = json.loads((folder / LIST).read_text())
    if options.filter:
        chosen = re.compile(options.filter)
        for program in programs:
            program["tests"] = [name for name in program.get("tests", []) if chosen.search(name)]
        programs = [each for each in programs if each["tests"] or ("name" in each and chosen.search(each["name"]))]
    machine = describe_machine()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="onehop-") as runtime:
        environment = os.environ | {"ONEHOP_RUNTIME_DIR": runtime, "ONEHOP_LOG": os.environ.get("ONEHOP_LOG", "warn")}
        if "ONEHOP_TEST_GPUS" in environment:
            # Ranks that are threads of one process share the queues of their GPU. By default there are 8, and the work of
            # one rank then waits behind that of another one, which may be waiting for it.
            environment.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
        runner = Runner(options, folder, environment, len(machine["gpus"]))
        for program in programs:
            if "name" not in program:
                runner.run_googletest(program)
            elif len(machine["gpus"]) < program.get("gpus", 0):
                runner.add(program["name"], program["name"], "skipped", 0, [f"needs {program['gpus']} GPUs"])
            else:
                runner.run_alone(program)
        sanitizer = run_sanitizer(programs, runner) if options.sanitizer else []
    totals = {}
    for each in runner.results + sanitizer:
        totals[each["status"]] = totals.get(each["status"], 0) + 1
    report = {"commit": options.commit, "date": datetime.datetime.now(datetime.timezone.utc).isoformat("T", "seconds"),
              "machine": machine, "totals": totals, "seconds": round(time.monotonic() - began, 1),
              "tests": runner.results, "sanitizer": sanitizer}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu-tests.json").write_text(json.dumps(report, indent=1) + "\n")
    (options.out / "gpu-tests.md").write_text(markdown(report))
    for suite, outcome, seconds in table(runner.results):
        print(f"{suite:40} {seconds:7.1f} s  {outcome}")
    print(f"{summary(report)}\nreport in {options.out}")
    if folder != HERE:
        shutil.rmtree(folder)
    return 0 if all(status in GOOD for status in totals) else 1


def main():
    parser = argparse.ArgumentParser(prog="gpu-tests.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=HERE.parent / "build" / "release", help="build tree")
    parser.add_argument("--pack", type=Path, metavar="DIR",
                        help="copy the programs, the list of tests and this script there, and run nothing")
    parser.add_argument("--out", type=Path, default=Path("gpu-tests"), help="where reports go (default: gpu-tests)")
    parser.add_argument("--commit", default=os.environ.get("ONEHOP_COMMIT", "unknown"), help="named in the report")
    parser.add_argument("--filter", metavar="REGEX", help="run (or pack) only tests whose names match")
    parser.add_argument("--budget", type=float, default=280, help="seconds for all tests (default: 280)")
    parser.add_argument("--test-timeout", type=float, default=60,
                        help="seconds for one test at most (default: 60; a program that is one test: what ctest gives it)")
    parser.add_argument("--sanitizer", action="store_true",
                        help=f"afterwards run the tests {SANITIZED}* under compute-sanitizer ({', '.join(SANITIZER_TOOLS)})")
    parser.add_argument("--sanitizer-timeout", type=float, default=90, help="seconds for each of its tools (default: 90)")
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.out = options.out.resolve()
    if options.pack:
        pack(options.build, options.pack, re.compile(options.filter or ""))
        return 0
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
