"""Python imports this at its start where its folder is on the path: the wall clock of a command stands still."""

import os
import time

FROZEN_S = float(os.environ["MURMURATE_TEST_CLOCK_S"])
time.time = lambda: FROZEN_S
