/* SPDX-License-Identifier: BSD-3-Clause */
/** Error codes, their texts, and macros that pass them on.
 *
 *  A function that can fail returns a code from the list below.  Its message names the file, row or
 *  option and what to do.  The thread keeps the message until its next failure.
 *
 *  - Most functions fail by `return MILL_ERROR(code, "...")` and pass a failure on by
 *    MILL_CHECK(call).  MILL_OWNED and MILL_AT_END (kernels/base/memory.h) free their memory.
 *  - A function with other work at its end has a variable `int err` and a label `done`.  MILL_FAIL
 *    and MILL_TRY go to `done`.  MILL_CHECK is refused there (-Wshadow): it has its own `err`. */
#pragma once

#include <stddef.h>

#include "kernels/base/common.h"

MILL_EXTERN_C_BEGIN

/** code, exit status of a job that ends with it, short text */
#define MILL_ERROR_LIST(X)                                                                         \
  X(MILL_OK, 0, "no error")                                                                        \
  X(MILL_ERR_USAGE, 2, "wrong usage")                                                              \
  X(MILL_ERR_CONFIG, 2, "bad configuration")                                                       \
  X(MILL_ERR_LIBRARY, 2, "bad library")                                                            \
  X(MILL_ERR_INPUT, 3, "unreadable input")                                                         \
  X(MILL_ERR_OUTPUT, 4, "cannot write output")                                                     \
  X(MILL_ERR_RANGE, 70, "value out of range")                                                      \
  X(MILL_ERR_MEMORY, 70, "out of memory")                                                          \
  X(MILL_ERR_BACKEND, 70, "compute backend failed")                                                \
  X(MILL_ERR_MPI, 70, "MPI call failed")                                                           \
  X(MILL_ERR_INTERNAL, 70, "internal error")                                                       \
  X(MILL_ERR_STOPPED, 75, "stopped in good order")

#define MILL_ERROR_ENUM(code, exit_status, text) code,
enum mill_error { MILL_ERROR_LIST(MILL_ERROR_ENUM) MILL_N_ERROR };
#undef MILL_ERROR_ENUM

/** Return a short text for a code; never NULL. */
const char *mill_error_text(int code);

/** Return the exit status (0, 2, 3, 4, 70 or 75) of a job that ends with code. */
int mill_error_exit_status(int code);

/** Record code and a printf-style message for this thread; returns code.  file and line: place of
 *  the failure, for the debug log. */
int mill_error_set(int code, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** Return the message of this thread's last failure; empty when there was none. */
const char *mill_error_message(void);

/** "file.c:123" of this thread's last failure; empty when there was none. */
const char *mill_error_place(void);

/** Forget this thread's last failure. */
void mill_error_clear(void);

enum { MILL_ERROR_MESSAGE = 1024, MILL_ERROR_PLACE = 128 };

/** A failure, kept while other calls may fail. */
typedef struct mill_error_kept {
  int code;
  char message[MILL_ERROR_MESSAGE];
  char place[MILL_ERROR_PLACE];
} mill_error_kept;

/** Copy this thread's last failure to *kept.  code: the code of this failure. */
void mill_error_save(int code, mill_error_kept *kept);

/** Return a if it is a failure, else b. */
static inline int mill_error_of(int a, int b)
{
  return a != MILL_OK ? a : b;
}

/** Make a failure kept by mill_error_save, of any thread, this thread's last; returns its code. */
int mill_error_restore(const mill_error_kept *kept);

#define MILL_ERROR(code, ...) mill_error_set((code), __FILE__, __LINE__, __VA_ARGS__)

/** Record a fault of the program itself; MILL_ERR_INTERNAL. */
#define MILL_BUG(format, ...)                                                                      \
  MILL_ERROR(MILL_ERR_INTERNAL, "internal error: " format ": please report it", ##__VA_ARGS__)

#define MILL_FAIL(code, ...)                                                                       \
  do {                                                                                             \
    err = MILL_ERROR(code, __VA_ARGS__);                                                           \
    goto done;                                                                                     \
  } while (0)

#define MILL_TRY(call)                                                                             \
  do {                                                                                             \
    err = (call);                                                                                  \
    if (err != MILL_OK)                                                                            \
      goto done;                                                                                   \
  } while (0)

/** Make a call unless err is a failure, and go on: all ranks must reach a later MPI call. */
#define MILL_STEP(call) (err = err == MILL_OK ? (call) : err)

#define MILL_CHECK(call)                                                                           \
  do {                                                                                             \
    const int err = (call);                                                                        \
    if (err != MILL_OK)                                                                            \
      return err;                                                                                  \
  } while (0)

MILL_EXTERN_C_END
