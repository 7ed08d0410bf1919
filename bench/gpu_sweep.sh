#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The whole comparison on a machine with GPUs: ours, NCCL's, NCCL's with symmetric windows and PyTorch's all-reduce, 2 and 4 ranks,
# bf16 and f32, 1 KB to 1 GB; then what calls cost when they depend on each other, arrive at random times, or are queued one by one.
# COLLECTIVES="all-reduce all-gather ..." (or all) does so for others: PyTorch has only all-reduce, and what only moves has one type.
#
#   bench/gpu_sweep.sh RESULTS [COMMAND]
#
# RESULTS is a folder for JSON, HTML and logs; COMMAND the onehop command (default: beside this script, else that of build/release).
# Libraries beside the command are found there. RANKS="2 4", TYPES="bf16 f32", SIZES, PARTS="chain buffers modes torch" and
# BUFFERS="symmetric registered" narrow it down;
# ONEHOP_NCCL_LIBRARY names NCCL's library (default: PyTorch's, else the system's), PYTHON the Python with PyTorch.
# Nothing takes longer than its limit; multicast is never used.
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
results=${1:?usage: gpu_sweep.sh RESULTS [COMMAND]}
command=${2:-}
if [ -z "$command" ]; then
  command=$here/onehop
  [ -x "$command" ] || command=$here/../build/release/tools/onehop/onehop
fi
[ -x "$command" ] || { echo "gpu_sweep: there is no command '$command'" >&2; exit 2; }
mkdir -p "$results" || exit 2

python=${PYTHON:-python3}
sizes=${SIZES:-1K,4K,16K,64K,256K,512K,1M,4M,16M,64M,256M,1G}
parts=${PARTS:-chain buffers modes torch}
collectives=${COLLECTIVES:-all-reduce}
[ "$collectives" = all ] && collectives="all-reduce all-gather reduce-scatter broadcast reduce all-to-all gather scatter"
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
libraries=$(dirname "$(readlink -f "$command")")
export LD_LIBRARY_PATH=$libraries:$libraries/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [ -z "${ONEHOP_NCCL_LIBRARY:-}" ]; then
  nccl=$("$python" -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])' 2>/dev/null) && export ONEHOP_NCCL_LIBRARY=$nccl
fi

failed=0
# measure NAME LIMIT COMMAND...: output to the screen and NAME.log
measure() {
  local name=$1 limit=$2 begin=$SECONDS code
  shift 2
  echo "== $name"
  timeout --kill-after=10 "$limit" "$@" 2>&1 | tee "$results/$name.log"
  code=${PIPESTATUS[0]}
  echo "== $name: exit code $code after $((SECONDS - begin)) s"
  [ "$code" = 0 ] || failed=1
  return "$code"
}
# ours NAME LIMIT OPTIONS...: of $collective; files of all-reduce have no name before theirs
ours() {
  local name=$1 limit=$2
  shift 2
  [ "$collective" = all-reduce ] || name=$collective-$name
  measure "$name" "$limit" "$command" bench "$collective" --device cuda --peer nccl --json "$results/$name.json" \
    --html "$results/$name.html" "$@"
}
has() { case " $parts " in *" $1 "*) true ;; *) false ;; esac; }
torch() { has torch && [ "$collective" = all-reduce ]; }

sweep() {  # COLLECTIVE RANKS
  local collective=$1 ranks=$2 types=${TYPES:-bf16 f32} modes="dependent isolated eager" some type mode buffers
  case $collective in
    all-reduce) ;;
    reduce | reduce-scatter) modes="isolated eager" ;;
    all-to-all) types=${types%% *} ;;
    *) types=${types%% *} modes="isolated eager" ;;
  esac
  for type in $types; do
    has chain && ours "chain-$ranks-$type" 100 --ranks "$ranks" --type "$type" --sizes "$sizes"
    torch && measure "torch-$ranks-$type" 100 "$python" "$here/peers/torch_symm_mem.py" --ranks "$ranks" --type "$type" \
      --sizes "$sizes" --timeout 90 --json "$results/torch-$ranks-$type.json"
  done
  # Copy engines bring long blocks straight to such memory.
  for buffers in ${BUFFERS:-symmetric registered}; do
    has buffers && ours "$buffers-$ranks-bf16" 60 --ranks "$ranks" --type bf16 --sizes "${BUFFER_SIZES:-64K,1M,16M,64M,256M,1G}" --buffers "$buffers"
  done
  has modes || return 0
  some="--ranks $ranks --type bf16 --sizes ${MODE_SIZES:-1K,16K,64K,256K,1M,4M,16M}"
  # shellcheck disable=SC2086
  for mode in $modes; do ours "$mode-$ranks-bf16" 60 $some --mode $mode; done
  # shellcheck disable=SC2086
  [ "$collective" = all-to-all ] || ours "in-place-$ranks-bf16" 60 $some --in-place
  # shellcheck disable=SC2086
  torch && measure "torch-dependent-$ranks-bf16" 60 "$python" "$here/peers/torch_symm_mem.py" $some --mode dependent \
    --timeout 50 --json "$results/torch-dependent-$ranks-bf16.json"
  return 0
}

for collective in $collectives; do
  for ranks in ${RANKS:-2 4}; do sweep "$collective" "$ranks"; done
done

echo
reports=()
for report in "$results"/*-*-*.json; do [ -e "$report" ] && reports+=("$report"); done
if [ "${#reports[@]}" -gt 0 ]; then
  "$python" "$here/compare_gpu.py" "${reports[@]}" --json "$results/compared.json" | tee "$results/compared.txt"
  "$python" "$here/plot_compare.py" "$results/compared.json" "$results/compared.svg" --columns 2 || failed=1
fi
exit "$failed"
