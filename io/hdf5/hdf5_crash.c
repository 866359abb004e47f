/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/hdf5/hdf5_crash.h"

#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/error.h"

enum {
  MAX_OPEN = 8,
  MAX_NAME = 1024,
  MAX_FRAME = 32,
  STACK_BYTES = 1 << 16 /* stack of the handler: endlessly nested groups overflow the usual one */
};

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
enum { N_SIGNAL = sizeof signals / sizeof *signals };
static struct sigaction before[N_SIGNAL];

typedef struct open_file {
  hid_t id; /* 0: being opened */
  int code;
  char path[MAX_NAME];
} open_file;

static _Thread_local open_file file[MAX_OPEN];
static _Thread_local int n_file;

/* Signal handler: print the name of the HDF5 file opened last, else the stack, and end the process.
 * Calls only async-signal-safe functions. */
static void on_crash(int number)
{
  void *frame[MAX_FRAME];
  if (n_file > 0) {
    const open_file *last = &file[n_file - 1];
    dprintf(STDERR_FILENO,
            "starmill: %s: the process died of signal %d while this HDF5 file was open; it is "
            "probably damaged: %s\n",
            last->path, number,
            last->code == MILL_ERR_OUTPUT ? "move it away, or fit again with --overwrite"
                                          : "make or fetch it again");
    _exit(mill_error_exit_status(last->code));
  }
  dprintf(STDERR_FILENO, "starmill: the process died of signal %d; please report these lines\n",
          number);
  backtrace_symbols_fd(frame, backtrace(frame, MAX_FRAME), STDERR_FILENO);
  for (int i = 0; i < N_SIGNAL; i++)
    sigaction(signals[i], &before[i], NULL);
  raise(number);
}

void mill_h5_name_crashes(void)
{
  static char stack[STACK_BYTES];
  void *frame;
  const stack_t alternative = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK};
  (void)backtrace(&frame, 1); /* the first call allocates, which a signal handler must not do */
  sigemptyset(&action.sa_mask);
  sigaltstack(&alternative, NULL);
  for (int i = 0; i < N_SIGNAL; i++)
    sigaction(signals[i], &action, &before[i]);
}

void mill_h5_opening(const char *path, int code)
{
  if (n_file == MAX_OPEN) /* forget the oldest file, the least likely cause */
    memmove(file, file + 1, (size_t)--n_file * sizeof *file);
  file[n_file] = (open_file){.code = code};
  snprintf(file[n_file++].path, MAX_NAME, "%s", path);
}

void mill_h5_opened(hid_t id)
{
  file[n_file - 1].id = id;
  n_file -= id < 0;
}

void mill_h5_forget(hid_t id)
{
  for (int i = n_file - 1; i >= 0; i--)
    if (file[i].id == id)
      memmove(file + i, file + i + 1, (size_t)(--n_file - i) * sizeof *file);
}
