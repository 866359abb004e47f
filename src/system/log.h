/* SPDX-License-Identifier: BSD-3-Clause */
/** The log; thread-safe.
 *
 *  A message is one line, "2026-11-21T05:36:05Z rank 0 INFO  fit.c:120  text", on standard error or
 *  in a file.  Errors of any rank always go to standard error, too.
 *
 *  Of warnings and errors from one place in the program, a job shows about MILL_LOG_LINES (each
 *  rank its share, at least one).  It counts the others, and logs their number when the log is
 *  closed.  Level debug shows all.
 */
#ifndef MILL_LOG_H
#define MILL_LOG_H

enum mill_log_level { MILL_LOG_ERROR, MILL_LOG_WARNING, MILL_LOG_INFO, MILL_LOG_DEBUG };

enum { MILL_LOG_LINES = 100 };

/** Open the log of a rank of n_rank.
 *
 *  level  enum mill_log_level
 *  path   lines are appended to this file, which ranks may share; NULL: standard error
 *
 *  Before the first call, lines up to INFO go to standard error as rank 0.  MILL_ERR_OUTPUT names
 *  the file; then nothing changes. */
int mill_log_open(int rank, int n_rank, int level, const char *path);
/** MILL_ERR_USAGE if the file of --log exists and its first line is not that of a starmill log:
 *  lines would be appended to a file of another kind. */
int mill_log_refuse_other(const char *path);
/** Log how many lines were left out, and close; later lines go to standard error. */
void mill_log_close(void);
/** Level of a name (error, warning, info, debug); -1: unknown name. */
int mill_log_level_from_name(const char *name);
/** Write a line.  It is cut after 4 kB; line ends within it become spaces.  If the file cannot be
 *  written, it goes to standard error. */
void mill_log_write(int level, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** Draw, or draw again, an unfinished line on standard error (src/system/progress.c); the next log
 *  line there replaces it.  NULL ends the line. */
void mill_log_status(const char *text);

#define MILL_LOG(level, ...)  mill_log_write((level), __FILE__, __LINE__, __VA_ARGS__)
#define mill_log_error(...)   MILL_LOG(MILL_LOG_ERROR, __VA_ARGS__)
#define mill_log_warning(...) MILL_LOG(MILL_LOG_WARNING, __VA_ARGS__)
#define mill_log_info(...)    MILL_LOG(MILL_LOG_INFO, __VA_ARGS__)
#define mill_log_debug(...)   MILL_LOG(MILL_LOG_DEBUG, __VA_ARGS__)

#endif
