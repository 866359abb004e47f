# SPDX-License-Identifier: BSD-3-Clause
"""`starmill status`: the progress of a fit, from its status file or its result.  NumPy and h5py are
imported only to read a result: a script may ask for the status every second."""

import calendar
import json
import math
import os
import socket
import time

from starmill.cli.basics import OUTPUT, Failure, as_failure, check_packages, need
from starmill.cli.running import Holder, is_alive, left

SIGNATURE = b'{\n  "format": "starmill status"'
SHOWN_RANKS = 8
# seconds, intervals between two status files: the larger counts
SILENT_S, SILENT_INTERVALS = 60.0, 10.0  # a rank without a new star for longer gets a line
GONE_S, GONE_INTERVALS = 660.0, 10.0  # a run silent for longer is gone: watchdogs act at 600 s
AGAIN = "the same command continues it"
STATES = {  # state: (exit status, text to print)
    "finished": (0, "finished"), "running": (10, "running"),
    "none": (11, "neither result nor status file exists"),
    "failed": (12, "the last run ended with an error"),
    "stopped": (75, f"stopped in good order; {AGAIN}"),
    "died": (75, f"the last run died (killed, or its node lost); {AGAIN}"),
    "incomplete": (75, f"not finished, and no run is active; {AGAIN}"),
    "damaged": (75, "finished, but some rows are damaged; the same command refits them, or where "
                "CATALOG_CRC is wrong says what to do")}


def shown(path):
    """Return a path of any bytes as text."""
    return os.fsencode(path).decode("utf-8", "replace")


def seconds(utc):
    """Return a time of the status file in seconds since 1970, NaN if it is not a time."""
    try:
        return float(calendar.timegm(time.strptime(utc, "%Y-%m-%dT%H:%M:%SZ")))
    except (TypeError, ValueError):
        return math.nan


def read_status(path):
    """Return the status file's contents, or None if there is none."""
    if not os.path.exists(path):
        return None
    with as_failure(OUTPUT, f"{path} is damaged", ValueError):
        need(os.path.isfile(path), OUTPUT, f"{path} is not a status file of starmill")
        with open(path, "rb") as file:
            words = file.read()
        need(words.startswith(SIGNATURE), OUTPUT, f"{path} is not a status file of starmill")
        return json.loads(words)


class Job:
    """The progress of an output.  state: key of STATES.  run, age_s: content (or None) and age of
    the status file.  begun: path of the result; with --overwrite (is_new) it is OUT.h5.new.
    result: facts of the result, as for JSON, or None."""

    def __init__(self, output, status, needs_result):
        self.output, self.status = output, status
        self.run, self.age_s, self.damage = read_status(status), math.inf, ""
        # read the lock before the result: a run that ends meanwhile then shows as finished
        self.lock = Holder(output)
        self.begun, self.result = os.path.realpath(output), None
        new = self.begun + ".new"
        # ignore an OUT.h5.new older than OUT.h5: a later run without --overwrite left it there
        self.is_new = os.path.exists(new) and not (
            os.path.exists(self.begun) and os.path.getmtime(self.begun) > os.path.getmtime(new))
        self.begun = new if self.is_new else self.begun
        self.has_result = os.path.exists(self.begun)
        is_running = self._is_running()
        if self.has_result and (needs_result or not (is_running and self.lock.is_active)):
            self._look()
        self.state = self._state(is_running)
        if self.state == "finished" and self.result:
            self._file.whole(0, self._file.n_row)
            if self._file.n_damaged:
                self.state, self.damage = "damaged", self._file.damaged_rows()
                self.result["damaged"] = self._file.n_damaged

    def said(self, key, otherwise=0):
        """Return a value of the status file, or `otherwise`."""
        value = (self.run or {}).get(key)
        return otherwise if value is None else value

    def _look(self):
        """Open the result; set self.result: counts of rows, and facts of the run."""
        check_packages("numpy", "h5py")
        from starmill.products.result import FITTED, Result
        self._file = found = Result(self.begun)
        n, n_warned = dict.fromkeys(found.statuses, 0), 0
        for start, stop in found.spans():
            status, warned = (found.fits[k][start:stop] for k in ("STATUS", "RVS_WARN"))
            n_warned += int(((status == FITTED) & (warned != 0)).sum())
            for code in n:
                n[code] += int((status == code).sum())
        said = found.provenance
        self.result = {
            "finished": found.finished, "rows": found.n_row, "warned": n_warned, "damaged": 0,
            "rows_by_status": {found.statuses[code][0]: count for code, count in n.items()},
            "start_time": said["START_TIME"], "end_time": said["END_TIME"] or None,
            "device": said["DEVICE"], "host": said["HOST"], "runs": int(said["N_RUN"]),
            "wall_s": float(said["WALL_S"]), "files": len(found.files),
            "files_unreadable": int((found.catalog["files/ERROR"][...] != b"").sum())}

    def _is_running(self):
        """Return whether the status file and its process say that the run goes on."""
        if self.run is None:
            return False
        updated = seconds(self.said("updated", ""))
        self.age_s = max(0.0, time.time() - updated) if updated == updated else math.inf
        if self.age_s > max(GONE_S, GONE_INTERVALS * self.said("interval_s")):
            return False
        return self.said("state", "") == "running" and (
            self.said("host", "") != socket.gethostname() or is_alive(self.said("pid")))

    def _state(self, is_running):
        # a finished OUT.h5.new has yet to become OUT.h5
        is_done = bool(self.result) and self.result["finished"] and not self.is_new
        said, is_locked = self.said("state", ""), self.lock.is_active
        if said == "running":
            is_its_lock = (self.lock.pid, self.lock.host) == (self.said("pid"), self.said("host"))
            if is_done and not is_locked:
                return "finished"  # the final status is written in a moment
            return "running" if is_running or (is_locked and not is_its_lock) else "died"
        if is_locked:  # by another run, which has not written its status yet
            return "running"
        if not is_done and (said == "failed" or said == "stopped" and self.has_result):
            return said
        return "none" if not self.has_result else "finished" if is_done else "incomplete"

    @property
    def is_told_by_run(self):
        """Return whether counts come from the status file; in a run it is newer than the result."""
        return self.run is not None and (self.state == "running" or not self.has_result)

    def counts(self):
        if self.is_told_by_run or not self.result:
            return {k: self.said(k) for k in ("rows", "done", "fitted", "failed", "remaining")}
        n = self.result["rows_by_status"]
        n_row, n_left, n_fitted = self.result["rows"], n["NOT_DONE"], n["FITTED"]
        return {"rows": n_row, "done": n_row - n_left, "fitted": n_fitted,
                "failed": n_row - n_left - n_fitted, "remaining": n_left}

    def reasons(self):
        if self.is_told_by_run:
            return self.said("failed_by_reason", {})
        return {name: n for name, n in self.result["rows_by_status"].items()
                if n and name not in ("NOT_DONE", "FITTED")}


def count_lines(job):
    n, told = job.counts(), job.run or job.result
    part = 100.0 * n["done"] / n["rows"] if n["rows"] else 100.0
    yield f"rows         {n['done']} of {n['rows']} done ({part:.1f} %)"
    yield f"fitted       {n['fitted']}"
    yield f"not fitted   {n['failed']}"
    for name, count in job.reasons().items():
        yield f"  {name:16} {count}"
    if n["remaining"] > 0:
        yield f"left         {n['remaining']}"
    if n_bad := told.get("files_unreadable"):
        yield f"unreadable   {n_bad} of {told['files']} files"


def rank_lines(job, is_all):
    ranks = job.said("ranks", [])
    limit_s = max(SILENT_S, SILENT_INTERVALS * job.said("interval_s"))
    for i, rank in enumerate(ranks):
        if is_all or len(ranks) <= SHOWN_RANKS:
            mib, gpu = 1 / (1 << 20), rank.get("gpu")
            line = f"  rank {rank['rank']:<4} {rank['stage']:9} {rank['done']:8} done  " \
                f"{mib * rank['resident_bytes']:6.0f} MiB (at most {mib * rank['peak_bytes']:.0f})"
            if gpu:
                busy = gpu["busy_percent"]
                line += f"  GPU {'?' if busy is None else busy} % busy, " \
                    f"{mib * gpu['used_bytes']:.0f} of {mib * gpu['total_bytes']:.0f} MiB"
            if rank["backend"] != job.said("backend", ""):
                line += f"  {rank['backend']}"
            yield f"{line}  {rank['file'] or ''}"
        silent_s = seconds(job.said("updated", "")) - seconds(rank["last_star"])
        if job.state == "running" and silent_s > limit_s and rank["stage"] == "fitting":
            yield f"  rank {i} has taken or finished no star for {silent_s:.0f} s"


def run_lines(job, is_all):
    error, n_rank = job.said("error", {}), len(job.said("ranks", []))
    if error:
        rank = "" if error["rank"] is None else f"rank {error['rank']}: "
        yield f"first error  {rank}{error['message']}"
    if job.state == "running":
        yield f"rate         {job.said('rows_per_s', math.nan):.4g} rows/s, about " \
            f"{left(job.said('left_s', math.nan))} left"
    else:
        yield f"rate         {job.said('mean_rows_per_s', math.nan):.4g} rows/s on average"
    yield f"run          since {job.said('started', '')} on {job.said('host', '')} (process " \
        f"{job.said('pid')}), {n_rank} rank{'' if n_rank == 1 else 's'}, {job.said('threads')} " \
        f"threads each, {job.said('backend', '')}"
    is_old = job.state == "running" and \
        job.age_s > max(SILENT_S, SILENT_INTERVALS * job.said("interval_s"))
    yield f"status       {shown(job.status)}, {job.age_s:.0f} s old" + \
        (": a long write, or the run died" if is_old else "")
    yield from rank_lines(job, is_all)


def lines(job, is_all):
    yield f"{shown(job.output)}: {STATES[job.state][1]}"
    if job.state == "none":
        return
    if job.damage:
        yield f"damaged      {job.damage}"
    if job.has_result and job.is_new:
        yield f"overwritten  by --overwrite when {shown(job.begun)} is finished; this status is " \
            "that of the new result; remove the new file to keep the old one"
    elif STATES[job.state][0] == 75 and job.said("done") and " --overwrite" in job.said("command"):
        yield "continued    by that command without --overwrite, which would start over"
    if job.result or job.run:
        yield from count_lines(job)
    if job.run:
        yield from run_lines(job, is_all)
        return
    if job.lock.is_held:
        yield f"lock         held by process {job.lock.pid} on " \
            f"{job.lock.host or 'an unknown host'}{', which is gone' * job.lock.is_gone}"
    if job.result:
        r = job.result
        end = f", last end {r['end_time']}" if r["end_time"] else ""
        yield f"run          begun {r['start_time']} on {r['host']} ({r['device']}){end}, " \
            f"{r['runs']} ended in good order, {r['wall_s']:.0f} s together"


def answer(job):
    found = {"state": job.state, "exit_status": STATES[job.state][0], "output": shown(job.output)}
    if job.result or job.run:
        found.update(job.counts())
    found["result"] = job.result
    if job.run:
        found["run_age_s"] = job.age_s if math.isfinite(job.age_s) else None
    found["run"] = job.run
    return found


def main(options):
    output, status = options.arguments[0], options.status or options.arguments[0] + ".status.json"
    try:
        job = Job(output, status, options.json)
        print(json.dumps(answer(job), indent=2, ensure_ascii=False) if options.json else
              "\n".join(lines(job, options.ranks)))
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:  # JSON, but not a run's
        raise Failure(OUTPUT, f"{output} or {status} is damaged: {error!r}") from error
    return STATES[job.state][0]
