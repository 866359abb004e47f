# SPDX-License-Identifier: BSD-3-Clause
"""Shows progress on standard error: on a terminal a bar, redrawn every REDRAW_S; in a log a line
every LOG_S."""

import math
import sys
import time

REDRAW_S, LOG_S, WIDTH = 0.2, 60, 20
SMOOTH_S = 20  # the rate averages over about this time


def left(seconds):
    """Return a duration as "1h02m", "3m05s" or "12s"; "?" if it is unknown."""
    if not 0 <= seconds < 9999 * 3600:
        return "?"
    minutes, s = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{s}s"
    return f"{minutes}m{s:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


class Progress:
    """Shows how many of total units are done.  Call update() at any rate, then end()."""

    def __init__(self, total, unit, done=0):
        self.total, self.unit, self._done = total, unit, done
        self._is_bar = sys.stderr.isatty()
        self._every = REDRAW_S if self._is_bar else LOG_S
        self._last, self._n, self._s = time.monotonic(), 0.0, 0.0
        self._drawn = False

    def update(self, done, bad=0):
        now = time.monotonic()
        passed = now - self._last
        if passed < self._every:
            return
        fade = math.exp(-passed / SMOOTH_S)
        self._n, self._s = self._n * fade + done - self._done, self._s * fade + passed
        self._last, self._done = now, done
        rate = self._n / self._s
        part = done / max(self.total, 1)
        words = (f"{100 * part:.1f} %  {done}/{self.total} {self.unit}  {bad} bad  "
                 f"{rate:.{2 if rate < 10 else 0}f}/s  "
                 f"{left((self.total - done) / rate if rate else math.inf)} left")
        if not self._is_bar:
            print(words, file=sys.stderr, flush=True)
            return
        print(f"\r[{'=' * int(part * WIDTH):{WIDTH}}] {words}\033[K", end="", file=sys.stderr,
              flush=True)
        self._drawn = True

    def end(self):
        if self._drawn:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
