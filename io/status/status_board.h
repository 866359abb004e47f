/* SPDX-License-Identifier: BSD-3-Clause */
/** Progress of a fit on all ranks, in a file that others may read at any time.
 *
 *  The threads of a rank record their state here.  Where the ranks meet anyway, at the write epochs
 *  of the result (mill_result_meet), rank 0 collects the notes and replaces the status file, so
 *  that a reader always finds a whole one, at most write_interval old.  When it cannot be written,
 *  the log says so once, and the fit goes on.
 *
 *  docs/use/formats.md describes the file.
 */
#ifndef MILL_STATUS_BOARD_H
#define MILL_STATUS_BOARD_H

#include "io/status/status_file.h"
#include "src/ranks/mpi_context.h"

typedef struct mill_board mill_board;

/** Is path fit for a status file: nothing there, or a status file?  One rank alone.
 *  MILL_ERR_USAGE when something else would be replaced, or the name is too long. */
int mill_board_check_path(const char *path);

/** Collective.  Rank 0 writes the first status.  MILL_ERR_MEMORY, MILL_ERR_MPI, MILL_ERR_INTERNAL.
 */
int mill_board_open(const mill_mpi *mpi, const mill_board_plan *plan, mill_board **out);

/** Collective over mpi: collect the notes of all ranks and write the status; context is the board.
 *  MILL_ERR_MPI. */
int mill_board_meet(void *context, const mill_mpi *mpi);

/** Notes of this rank; any thread, and board may be NULL. */
void mill_board_took(mill_board *board, int i_file);     /**< a row from the reader */
void mill_board_finished(mill_board *board, int status); /**< a row, with its STATUS */
void mill_board_stage(mill_board *board, enum mill_rank_stage stage);
void mill_board_memory(mill_board *board, enum mill_purpose purpose,
                       size_t bytes); /**< the largest counts */
void mill_board_failed(mill_board *board, int code, const char *message);

/** Rows that are done on all ranks, and those of them without a fit, earlier runs included.  What
 *  the other ranks did since the last meeting is taken to go on at the rate that they had.  Zeros
 *  where board is NULL. */
void mill_board_count(mill_board *board, int64_t *n_done, int64_t *n_failed);

/** Collective: bring the last state of every rank to rank 0.  MILL_ERR_MPI. */
int mill_board_settle(mill_board *board, const mill_mpi *mpi);

/** The last states [n_rank] by rank, on rank 0 after mill_board_settle. */
const mill_rank_state *mill_board_ranks(const mill_board *board, int *n_rank);

/** Write the last status file (rank 0) and free; not collective, board may be NULL.  end NULL:
 *  leave the file as it is, since the ranks can no longer communicate. */
void mill_board_free(mill_board *board, const mill_board_end *end);

#endif
