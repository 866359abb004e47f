/** How a fit is going on all ranks, in a file that others may read at any time.
 *
 *  The threads of a rank note here what they do, which costs next to nothing, and a thread of the
 *  board sends the notes to rank 0 every few seconds.  Rank 0's thread writes them to the status
 *  file, under another name first, so that a reader always finds a whole one.  No rank waits for
 *  another: one whose last message was not taken yet sends none, rank 0 takes what has come.  So
 *  a rank or a file system that hangs shows in the status and stops nothing; and when the status
 *  file cannot be written, the log says so once, and the fit goes on.
 *
 *  docs/use/formats.md describes the file.
 */
#ifndef MILL_STATUS_BOARD_H
#define MILL_STATUS_BOARD_H

#include "jobs/status/status_file.h"
#include "src/ranks/mpi_context.h"

typedef struct mill_board mill_board;

/** Is path fit for a status file: nothing there, or a status file?  One rank alone.
 *  MILL_ERR_USAGE when something else would be replaced, or the name is too long. */
int mill_board_check_path(const char *path);

/** Collective.  Start, with the thread where there is a path.  MILL_ERR_MEMORY, MILL_ERR_MPI,
 *  MILL_ERR_INTERNAL. */
int mill_board_open(const mill_mpi *mpi, const mill_board_plan *plan, mill_board **out);

/** Notes of this rank; any thread, and board may be NULL. */
void mill_board_took(mill_board *board, int i_file);     /**< a row from the reader */
void mill_board_finished(mill_board *board, int status); /**< a row, with its STATUS */
void mill_board_stage(mill_board *board, int stage);
void mill_board_memory(mill_board *board, int purpose, size_t bytes); /**< the largest counts */
/** A failure of this rank: it reaches the status file at once, not only when the other ranks
 *  have come to their end. */
void mill_board_failed(mill_board *board, int code, const char *message);

/** Rows without a fit on all ranks, earlier runs included, as far as this rank knows. */
int64_t mill_board_n_failed(mill_board *board);

/** Collective.  Stop the threads and bring the last state of every rank to rank 0.  After it
 *  notes are still taken, but not sent.  MILL_ERR_MPI. */
int mill_board_settle(mill_board *board);

/** The last states [n_rank] by rank, on rank 0 after mill_board_settle. */
const mill_rank_state *mill_board_ranks(const mill_board *board, int *n_rank);

/** Write the last status file (rank 0) and free; not collective, board may be NULL.  end NULL:
 *  leave the file as it is, for the ranks cannot talk to each other any more. */
void mill_board_free(mill_board *board, const mill_board_end *end);

#endif
