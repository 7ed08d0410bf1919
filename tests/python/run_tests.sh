#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the one wheel in WHEELS in an environment of its own and runs the tests of the package: run_tests.sh WHEELS WORK
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
wheels=("$1"/onehop-*.whl)
if [[ ! -f ${wheels[0]} ]]; then
  echo "skipped: there is no wheel in $1"
  exit 77
fi
environment=$2/tests-$("$root/scripts/python-env.sh" --tag)
"$root/tests/python/environment.sh" "$root/python/requirements-test.txt" "$environment"
"$environment/bin/python" -m pip install --disable-pip-version-check --quiet --no-deps --no-index --force-reinstall "${wheels[0]}"
# Not in the folder of the sources, which Python would import.
cd "$root/python/tests"
unset PYTHONPATH
exec "$environment/bin/python" -B -m pytest -p no:cacheprovider --durations=5
