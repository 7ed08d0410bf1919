#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the wheel in WHEELS beside torch and runs the tests of onehop.torch: test-torch.sh WHEELS [pytest option...]
# test-torch.sh --environment only installs torch.
# PYTHON (python3) selects the interpreter, REQUIREMENTS (python/requirements-torch.txt) the version of torch.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
tag=$("$root/scripts/python-env.sh" --tag)
requirements=${REQUIREMENTS:-$root/python/requirements-torch.txt}
# Most of what torch depends on are CUDA libraries, which nothing here loads.
environment=$(PIP_NO_DEPS=1 "$root/scripts/python-env.sh" "$requirements" "$root/build/python/torch-$tag")
[[ $1 != --environment ]] || exit 0
wheels=$(realpath "$1")
shift
if [[ $tag == cp311 ]]; then tag=cp311-cp311; else tag=cp312-abi3; fi
"$environment/bin/python" -m pip install --disable-pip-version-check --quiet --no-deps --no-index --force-reinstall "$wheels"/onehop-*-"$tag"-*.whl
# Not in the folder of the sources, which Python would import.
cd "$root/python/torch_tests"
unset PYTHONPATH
exec "$environment/bin/python" -B -m pytest -q -p no:cacheprovider -c /dev/null . "$@"
