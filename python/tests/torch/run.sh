#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of onehop.torch: run.sh PYTHON [pytest options]. PYTHON has torch 2.11 or later and pytest.
# With a checkout instead of an installed onehop, set ONEHOP_LIBRARY (the path of libonehop.so) and
# ONEHOP_INCLUDE (that of include/).
set -eu
python=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
if [ -n "${ONEHOP_LIBRARY-}" ]; then
  PYTHONPATH=$here/../..${PYTHONPATH:+:$PYTHONPATH}
  export PYTHONPATH
fi
exec "$python" -m pytest -q -p no:cacheprovider "$here" "$@"
