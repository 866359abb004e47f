/** Log lines with time, rank, level and place; thread-safe.
 *
 *  One line a message: "2026-11-21T05:36:05Z rank 0 INFO  fit.c:120  text",
 *  on standard error or a file.  Errors of any rank always reach standard
 *  error.
 */
#ifndef MILL_LOG_H
#define MILL_LOG_H

enum mill_log_level { MILL_LOG_ERROR, MILL_LOG_WARNING, MILL_LOG_INFO, MILL_LOG_DEBUG };

/** path NULL: standard error. Level names as in the configuration. MILL_ERR_OUTPUT. */
int mill_log_open(int rank, int level, const char *path);
void mill_log_close(void);
/** -1 when the name is none. */
int mill_log_level_from_name(const char *name);
void mill_log_write(int level, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define MILL_LOG(level, ...) mill_log_write((level), __FILE__, __LINE__, __VA_ARGS__)
#define mill_log_error(...) MILL_LOG(MILL_LOG_ERROR, __VA_ARGS__)
#define mill_log_warning(...) MILL_LOG(MILL_LOG_WARNING, __VA_ARGS__)
#define mill_log_info(...) MILL_LOG(MILL_LOG_INFO, __VA_ARGS__)
#define mill_log_debug(...) MILL_LOG(MILL_LOG_DEBUG, __VA_ARGS__)

#endif
