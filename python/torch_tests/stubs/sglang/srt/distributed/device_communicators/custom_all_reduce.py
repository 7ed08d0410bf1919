# SPDX-License-Identifier: Apache-2.0
from contextlib import contextmanager


class CustomAllreduce:
    def __init__(self, group, device, max_size=8192 * 1024):
        self.disabled = True

    @contextmanager
    def capture(self):
        yield

    def should_custom_ar(self, inp):
        return False

    def custom_all_reduce(self, input):
        return None

    def close(self):
        pass


def dispatch_custom_allreduce(group, device):
    return CustomAllreduce
