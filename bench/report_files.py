# SPDX-License-Identifier: Apache-2.0
"""Reading reports, and writing what is made of them, for the scripts beside this file. What goes wrong takes one line."""
import contextlib
import json
import pathlib
import sys


def stop(message):
    sys.exit(f"{pathlib.Path(sys.argv[0]).stem}: {message}")


def read_report(path):
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        stop(f"cannot read '{path}': {error.strerror}")
    except (ValueError, RecursionError) as error:
        stop(f"'{path}' is no JSON: {error}")
    if not isinstance(report, dict):
        stop(f"'{path}' is no report: it has to be an object")
    return report


@contextlib.contextmanager
def made_of(paths):
    """Around work on what was read: a report without a field, or with a value that cannot be, is named."""
    try:
        yield
    except KeyError as error:
        stop(f"{' '.join(map(str, paths))}: the field {error} is missing")
    except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError) as error:
        stop(f"{' '.join(map(str, paths))}: a field has a value that cannot be: {error}")


def write(path, text):
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        stop(f"cannot write '{path}': {error.strerror}")
