# SPDX-License-Identifier: Apache-2.0
class EnvField:
    def __init__(self, default, secret=False):
        self.value = default

    def get(self):
        return self.value

    def set(self, value):
        self.value = value


class Envs:
    SGLANG_ENABLE_DETERMINISTIC_INFERENCE = EnvField(False)


envs = Envs()
