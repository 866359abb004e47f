/* SPDX-License-Identifier: BSD-3-Clause */
/** Facts about this process and others on its machine, for status and doctor. */
#ifndef MILL_STATUS_PROCESS_H
#define MILL_STATUS_PROCESS_H

#include <stddef.h>
#include <stdint.h>

/** Bytes of this process in memory now and at most so far; 0 where the system does not say. */
void mill_process_memory(int64_t *resident, int64_t *peak);

/** Bytes of memory of this machine, those that are free for programs, and the limit that the
 *  group of this process has (of a batch system or container; 0: none). */
void mill_machine_memory(int64_t *total, int64_t *available, int64_t *limit);

/** Host name into out [size], "unknown" when there is none. */
void mill_host_name(char *out, size_t size);

/** Model of the processor as the system names it into out [size], "unknown processor" where it does
 *  not. */
void mill_cpu_model(char *out, size_t size);

/** State (a letter, see proc(5)) of a process of this machine, and its start in ticks since the
 *  machine was booted, which distinguishes it from a later one with the same number.  0 when /proc
 *  does not say. */
int mill_process_look(int64_t pid, char *state, unsigned long long *start);

/** Is a process of this machine alive?  One that has ended but was not waited for is not. */
int mill_process_alive(int64_t pid);

/** Seconds since 1970-01-01 UTC (mill_unix_s) as text "2026-11-21T05:36:05Z". */
enum { MILL_UTC_SIZE = 24 };
void mill_utc_text(double unix_s, char out[MILL_UTC_SIZE]);

#endif
