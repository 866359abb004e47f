/* SPDX-License-Identifier: BSD-3-Clause */
/** Clocks in seconds: CPU time of the thread and the process, wall-clock time. */
#pragma once

/** Return CPU seconds (user + system) of the thread or process.  A call takes 0.2 microseconds. */
double mill_thread_cpu_s(void);
double mill_process_cpu_s(void);

/** Monotonic time. Safe in a signal handler. */
double mill_wall_s(void);

/** Monotonic time that also advances while the machine is suspended. */
double mill_boot_s(void);

/** Seconds since 1970-01-01 UTC. */
double mill_unix_s(void);
