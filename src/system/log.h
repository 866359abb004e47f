/* SPDX-License-Identifier: BSD-3-Clause */
/** The log; thread-safe.
 *
 *  A message is one line, "2026-11-21T05:36:05Z rank 0 INFO  fit.c:120  text", on standard error or
 *  in a file.  Errors of any rank always go to standard error, too.
 *
 *  A job shows about MILL_LOG_LINES warnings or errors of one source line, divided among the ranks;
 *  each rank shows at least one.  The number of further lines is logged at the end.  Level
 *  debug shows all. */
#pragma once

enum mill_log_level { MILL_LOG_ERROR, MILL_LOG_WARNING, MILL_LOG_INFO, MILL_LOG_DEBUG };

enum { MILL_LOG_LINES = 100 };

/** Open the log of one of n_rank ranks.
 *
 *  level  enum mill_log_level
 *  path   file to append lines to, which ranks may share; NULL: standard error
 *
 *  Before the first call, lines up to INFO go to standard error as rank 0.  MILL_ERR_OUTPUT
 *  names the file; the log is then unchanged. */
int mill_log_open(int rank, int n_rank, int level, const char *path);
/** Refuse to append to a file of another kind: MILL_ERR_USAGE if the file at path exists and does
 *  not begin with a line of a starmill log. */
int mill_log_refuse_other(const char *path);
/** Log how many lines were left out, and close; later lines go to standard error. */
void mill_log_close(void);
/** Return the level of a name (error, warning, info, debug); -1: unknown name. */
int mill_log_level_from_name(const char *name);
/** Write a log line: it is cut after 4 kB, and line ends within it become spaces.  If the file
 *  cannot be written, the line goes to standard error. */
void mill_log_write(int level, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** Draw or redraw an unfinished line on standard error (src/system/progress.c); the next log
 *  line on standard error replaces it.  NULL ends the line. */
void mill_log_status(const char *text);

#define MILL_LOG(level, ...)  mill_log_write((level), __FILE__, __LINE__, __VA_ARGS__)
#define mill_log_error(...)   MILL_LOG(MILL_LOG_ERROR, __VA_ARGS__)
#define mill_log_warning(...) MILL_LOG(MILL_LOG_WARNING, __VA_ARGS__)
#define mill_log_info(...)    MILL_LOG(MILL_LOG_INFO, __VA_ARGS__)
#define mill_log_debug(...)   MILL_LOG(MILL_LOG_DEBUG, __VA_ARGS__)
