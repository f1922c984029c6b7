"""The seed of this run's random choices: the one told, or a new one."""

from __future__ import annotations

import os
import random

SEED = os.environ.get("FOREBAY_TEST_SEED") or str(random.SystemRandom().randrange(10**6))
