# SPDX-License-Identifier: Apache-2.0
from contextlib import contextmanager


class CustomAllreduce:
    @contextmanager
    def capture(self):
        yield
