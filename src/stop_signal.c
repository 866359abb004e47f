#include "src/stop_signal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "kernels/error.h"

static volatile sig_atomic_t seen;

static void note(int number)
{
  seen = number;
}

int mill_stop_signal_catch(void)
{
  int err = MILL_OK;
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGTERM, &action, NULL) != 0 || sigaction(SIGINT, &action, NULL) != 0 ||
      sigaction(SIGUSR1, &action, NULL) != 0)
    MILL_FAIL(MILL_ERR_INTERNAL, "cannot catch signals: %s", strerror(errno));
done:
  return err;
}

int mill_stop_signal_seen(void)
{
  return (int)seen;
}
