# SPDX-License-Identifier: Apache-2.0
"""onehop in inference engines. docs/engines.md is the guide; onehop_plugins has the entry points."""
