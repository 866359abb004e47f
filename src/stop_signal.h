/** SIGTERM, SIGINT and SIGUSR1 (Slurm's warning before the time limit) ask a job to
 *  stop in good order: they are noted here and looked at between pieces of work. */
#ifndef MILL_STOP_SIGNAL_H
#define MILL_STOP_SIGNAL_H

/** From now on note these signals instead of dying of them.  MILL_ERR_INTERNAL. */
int mill_stop_signal_catch(void);

/** Number of the last one noted, 0: none yet. */
int mill_stop_signal_seen(void);

#endif
