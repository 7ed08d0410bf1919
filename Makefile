# SPDX-License-Identifier: Apache-2.0
# The short way to everything. CMake (with the presets of CMakePresets.json) does the work and can be used directly.

JOBS ?= $(shell nproc)
CUDA ?= auto
PYTHON ?= python3
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 20
BENCH_ARGS ?=
CTEST_ARGS ?=
export JOBS CUDA

installed = build/installed-files.txt
sources = git ls-files -z '*.h' '*.cc' '*.c' '*.cuh' '*.cu'
# Tests that need the machine to themselves say so (RUN_SERIAL); the others may run side by side.
ctest = ctest --output-on-failure -j $(JOBS) $(CTEST_ARGS)
# What `make check` leaves to `make test`: slow kinds of tests, and groups of many ranks.
slow = -LE '^(fault|model|install|python|cuda|ptx)$$' -E 'Host(Threads|Processes)[4-8]$$'

# Under sanitizers: the library, and not the command, whose parser of reports is fuzzed under ASan and UBSan; and not what
# looks at sources. ThreadSanitizer sees the threads of one process. It leaves out the conformance suite and the kill matrix
# with processes for ranks, which AddressSanitizer runs, and what only computes.
asan_skips = -LE '^(lint|python)$$'
tsan_skips = -LE '^(lint|python|fuzz)$$' \
  -E 'HostProcesses|^(KillMatrix|Push|Streaming.*|DeviceAlgorithms|CandidateChoices|CopyEngine.*|Channel|StressPlan|Formats.*|Fp8.*|TopologyJson|Types/HostReduce|CApiMisuseInFolder)[./]'

.DEFAULT_GOAL := help
.PHONY: help deps build run check test format lint sanitize asan-ubsan tsan fuzz aarch64 coverage install uninstall gpu-bundle packages wheel test-torch docs clean

help: ## what can be asked for
	@echo "make ..."
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

deps: ## install the Debian packages that are missing (the list: scripts/install-deps.sh)
	@scripts/install-deps.sh

build: deps ## build everything, optimized, in build/release
	@CPU_MINUTES=16 scripts/build.sh release

# These two build in build/native what this machine can run: no kernels where no GPU answers (CUDA=on builds them).
run: ## build the command, then measure a verified all-reduce from 1 KB to 64 MB (BENCH_ARGS=... to change it)
	@scripts/install-deps.sh build
	@CPU_MINUTES=3 scripts/build.sh native $(if $(wildcard build/native/build.ninja),,-DONEHOP_BUILD_TESTS=OFF) onehop_command
	@build/native/tools/onehop/onehop bench all-reduce $(BENCH_ARGS)

check: ## build for this machine, then run the quick tests
	@scripts/install-deps.sh test
	@CPU_MINUTES=7 scripts/build.sh native -DONEHOP_BUILD_TESTS=ON
	@$(ctest) $(slow) --test-dir build/native

test: build ## build, then run all tests (ONEHOP_MODELS=whole: the large models, too)
	@$(ctest) --test-dir build/release

format: deps ## lay out all sources with clang-format
	@$(sources) | xargs -0 clang-format -i

lint: deps ## clang-format, include direction, shellcheck, flake8 and clang-tidy
	@scripts/lint.sh

sanitize: asan-ubsan tsan ## run the tests under AddressSanitizer + UBSan, then under ThreadSanitizer

asan-ubsan: deps
	@scripts/build.sh asan-ubsan
	@scripts/with-sanitizer.sh $(ctest) $(asan_skips) --test-dir build/asan-ubsan

tsan: deps
	@scripts/build.sh tsan
	@scripts/with-sanitizer.sh $(ctest) $(tsan_skips) --test-dir build/tsan

fuzz: deps ## run every fuzz target on its corpus for FUZZ_SECONDS (20) each
	@scripts/build.sh asan-ubsan fuzzers
	@scripts/fuzz.sh build/asan-ubsan $(FUZZ_SECONDS)

aarch64: ## build for 64-bit Arm (Grace), and run some tests under qemu
	@scripts/aarch64.sh

coverage: deps ## line and branch coverage of the tests, as build/coverage/report.html
	@scripts/build.sh coverage
	@$(ctest) --test-dir build/coverage
	@gcovr --root . --object-directory build/coverage --filter src/ --filter include/ --filter tools/ \
	  --exclude '.*_test\.cc' --exclude-throw-branches --print-summary \
	  --html-details build/coverage/report.html > /dev/null && echo "report: build/coverage/report.html"

install: deps ## build and install under PREFIX (/usr/local): library, headers, the command, its manual and completions
	@CPU_MINUTES=11 scripts/build.sh release onehop_install_files
	@cmake --install build/release --prefix "$(PREFIX)"
	@cp build/release/install_manifest.txt $(installed)  # tests install, too

uninstall: ## remove what was last installed under PREFIX from here
	@cmake -DMANIFEST=$(installed) -DPREFIX="$(PREFIX)" -P cmake/Uninstall.cmake

gpu-bundle: deps ## what a machine with GPUs needs to run the GPU tests, in build/gpu-bundle (TYPES=bf16,f32: only their kernels)
	@rm -rf build/gpu-bundle
	@scripts/gpu-bundle.sh build/gpu-bundle
	@echo "in build/gpu-bundle; on the machine with GPUs: gpu-tests.sh --out REPORTS"

packages: deps ## build the Debian packages, in build/release/packages
	@CPU_MINUTES=11 scripts/build.sh release onehop_install_files
	@cd build/release && cpack -G DEB

wheel: deps ## build the Python package as a wheel, in build/wheels (PYTHON="python3.11 python3.12": with each of these)
	@CPU_MINUTES=11 scripts/build.sh release onehop_install_files
	@for python in $(PYTHON); do PYTHON=$$python scripts/wheel.sh build/release build/wheels || exit 1; done

test-torch: wheel ## test onehop.torch in an environment of its own, with torch 2.11 (a download of 0.6 GB)
	@scripts/test-torch.sh build/wheels

docs: ## make HTML pages of the headers and of docs, with search, in build/docs/html
	@scripts/install-deps.sh docs
	@mkdir -p build && doxygen docs/Doxyfile > build/docs.log 2>&1 || { cat build/docs.log >&2; exit 1; }
	@echo "in build/docs/html/index.html"

clean: ## remove everything that was built
	@rm -rf build
