# SPDX-License-Identifier: Apache-2.0
"""Reading reports, and writing what is made of them, for the scripts beside this file. What goes wrong takes one line."""
import contextlib
import json
import os
import pathlib
import resource
import sys
import tempfile


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
    """All of it, or nothing: an earlier file is replaced only by a complete one. Pipes and devices are written directly."""
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        whole = path.resolve()  # a link stays one
        begun = whole.with_name(f"{whole.name}.{os.getpid()}.new")
        try:
            begun.write_text(text, encoding="utf-8")
            begun.replace(whole)
        finally:
            begun.unlink(missing_ok=True)
    except OSError as error:
        stop(f"cannot write '{path}': {error.strerror}")


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        file, link = pathlib.Path(folder, "report"), pathlib.Path(folder, "link")
        write(file, "earlier")
        link.symlink_to(file)
        write(link, "later")
        assert link.is_symlink() and file.read_text() == "later"
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            write(file, "x" * 2000)
        except SystemExit as error:
            assert f"cannot write '{file}': File too large" in str(error), error
        else:
            raise AssertionError("a file was written beyond the limit")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert file.read_text() == "later" and len(list(pathlib.Path(folder).iterdir())) == 2
    reader, writer = os.pipe()
    write(pathlib.Path(f"/dev/fd/{writer}"), "through a pipe")
    assert os.read(reader, 100) == b"through a pipe"


if __name__ == "__main__":
    if sys.argv[1:] != ["--self-test"]:
        sys.exit(__doc__)
    self_test()
