/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/stop_signal.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"

/* lock-free, so that the signal handler may use them in any thread */
static _Atomic int seen, reason, is_catching;
static _Atomic int64_t first_ms; /* time of the first signal; 0: none, or not stored yet */
enum { GRACE_MS = 1000 };        /* later than this, another signal ends the process at once */

static int64_t now_ms(void)
{
  return (int64_t)(1000.0 * mill_wall_s());
}

/* The signal handler, with async-signal-safe calls only.  The first signal stops the run in order;
 * another one, GRACE_MS later or more, ends the process at once. */
static void note(int number)
{
  static const char message[] =
      "starmill: stopped at once by a second signal; the same command continues\n";
  const int saved = errno;
  int none = 0;
  if (atomic_compare_exchange_strong(&seen, &none, number)) {
    atomic_store(&first_ms, now_ms());
    mill_stop_note(MILL_STOP_SIGNAL);
  } else if (atomic_load(&first_ms) != 0 && now_ms() - atomic_load(&first_ms) >= GRACE_MS) {
    const ssize_t ignored = write(STDERR_FILENO, message, sizeof message - 1);
    (void)ignored;
    _exit(128 + number);
  }
  errno = saved;
}

int mill_stop_signal_catch(void)
{
  struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGTERM, &action, NULL) != 0 || sigaction(SIGINT, &action, NULL) != 0 ||
      sigaction(SIGUSR1, &action, NULL) != 0)
    return MILL_ERROR(MILL_ERR_INTERNAL, "cannot catch signals: %s", strerror(errno));
  atomic_store(&is_catching, 1);
  return MILL_OK;
}

static void name_signals(sigset_t *set)
{
  sigemptyset(set);
  sigaddset(set, SIGTERM);
  sigaddset(set, SIGINT);
  sigaddset(set, SIGUSR1);
}

void mill_stop_signal_hold(void)
{
  sigset_t set;
  name_signals(&set);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void mill_stop_signal_take_waiting(void)
{
  static const struct timespec at_once = {0};
  sigset_t set;
  if (!atomic_load(&is_catching))
    return;
  name_signals(&set);
  const int number = sigtimedwait(&set, NULL, &at_once);
  if (number > 0)
    note(number);
}

int mill_stop_signal_seen(void)
{
  return atomic_load(&seen);
}

void mill_stop_note(enum mill_stop_reason why)
{
  int none = MILL_STOP_NONE;
  atomic_compare_exchange_strong(&reason, &none, (int)why);
}

enum mill_stop_reason mill_stop_reason(void)
{
  return (enum mill_stop_reason)atomic_load_explicit(&reason, memory_order_relaxed);
}
