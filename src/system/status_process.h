/* SPDX-License-Identifier: BSD-3-Clause */
/** Facts about this process and others on its machine, for status and doctor. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/** Resident memory of this process in bytes: now, and its peak so far; 0: unknown. */
void mill_process_memory(int64_t *resident, int64_t *peak);

/** Memory of this machine in bytes: total, available to programs, and the limit of this
 *  process's control group (set by a batch system or container; 0: none). */
void mill_machine_memory(int64_t *total, int64_t *available, int64_t *limit);

/** Host name into out [size], or "unknown". */
void mill_host_name(char *out, size_t size);

/** Model of the processor into out [size], or "unknown processor". */
void mill_cpu_model(char *out, size_t size);

/** Read a process's state (a letter, see proc(5)) and its start in ticks since boot, which
 *  distinguishes it from a later process with the same pid.  Returns 0 if /proc lacks pid. */
int mill_process_look(int64_t pid, char *state, unsigned long long *start);

/** Is a process of this machine alive?  A zombie counts as dead. */
int mill_process_alive(int64_t pid);

/** Write a time in seconds since 1970-01-01 UTC (mill_unix_s) as "2026-11-21T05:36:05Z". */
enum { MILL_UTC_SIZE = 24 };
void mill_utc_text(double unix_s, char out[MILL_UTC_SIZE]);
