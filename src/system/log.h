/* SPDX-License-Identifier: BSD-3-Clause */
/** Log lines with time, rank, level and place; thread-safe.
 *
 *  One line per message: "2026-11-21T05:36:05Z rank 0 INFO  fit.c:120  text", on standard error or
 *  a file.  Errors of any rank always reach standard error.
 *
 *  Of the warnings and errors from one place of the program a job shows about MILL_LOG_LINES
 *  (each rank its share, at least one) and counts the others; the count is logged when the log is
 *  closed.  Level debug shows all.
 */
#ifndef MILL_LOG_H
#define MILL_LOG_H

enum mill_log_level { MILL_LOG_ERROR, MILL_LOG_WARNING, MILL_LOG_INFO, MILL_LOG_DEBUG };

enum { MILL_LOG_LINES = 100 };

/** rank of n_rank (1 or more).  path NULL: standard error; else lines are
 *  appended to the file, which several ranks may share.  level: enum
 *  mill_log_level, as mill_log_level_from_name gives it.  Until this is called,
 *  lines up to INFO go to standard error as rank 0.  MILL_ERR_OUTPUT names the
 *  file; the log is then as it was. */
int mill_log_open(int rank, int n_rank, int level, const char *path);
/** Check by its first line that the file at path, of option --log, is a log of ours: MILL_ERR_USAGE
 *  if not, so that notes or a list are not appended to.  A missing or empty file is allowed. */
int mill_log_refuse_other(const char *path);
/** Log how many lines were left out, and close.  Lines then go to standard error again. */
void mill_log_close(void);
/** Level of a name as in the configuration (error, warning, info, debug); -1
 *  when the name is no level. */
int mill_log_level_from_name(const char *name);
/** A line beyond 4 kB is cut, line ends within the text become spaces; a line
 *  that the file does not take goes to standard error. */
void mill_log_write(int level, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** Redraw a line without end on standard error (src/system/progress.c), cleared
 *  before the next log line there; NULL ends it with a newline when one stands. */
void mill_log_status(const char *text);

#define MILL_LOG(level, ...)  mill_log_write((level), __FILE__, __LINE__, __VA_ARGS__)
#define mill_log_error(...)   MILL_LOG(MILL_LOG_ERROR, __VA_ARGS__)
#define mill_log_warning(...) MILL_LOG(MILL_LOG_WARNING, __VA_ARGS__)
#define mill_log_info(...)    MILL_LOG(MILL_LOG_INFO, __VA_ARGS__)
#define mill_log_debug(...)   MILL_LOG(MILL_LOG_DEBUG, __VA_ARGS__)

#endif
