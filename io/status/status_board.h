/* SPDX-License-Identifier: BSD-3-Clause */
/** Progress of a fit on all ranks, in a status file (docs/use/formats.md).
 *
 *  The threads of a rank note its state on a board.  When the ranks meet to write rows
 *  (mill_result_meet), rank 0 collects the notes and replaces the status file, so a reader always
 *  finds a complete file.  If it cannot be written, the log warns once, and the fit continues. */
#pragma once

#include "io/status/status_file.h"
#include "src/ranks/mpi_context.h"

typedef struct mill_board mill_board;

/** Fail with MILL_ERR_USAGE if path is too long or another kind of file.  Call on one rank. */
int mill_board_check_path(const char *path);

/** Open a board; rank 0 writes the first status.  Collective.  MILL_ERR_MEMORY, MILL_ERR_MPI,
 *  MILL_ERR_INTERNAL. */
int mill_board_open(const mill_mpi *mpi, const mill_board_plan *plan, mill_board **out);

/** Write the status file with all ranks' notes; context: the board.  Collective.  MILL_ERR_MPI. */
int mill_board_meet(void *context, const mill_mpi *mpi);

/** Note an event of this rank: a row of file i_file came from the reader, a row got its STATUS, ...
 *  The largest use of memory and the first failure are kept.  Any thread. */
void mill_board_took(mill_board *board, int i_file);
void mill_board_finished(mill_board *board, int status);
void mill_board_stage(mill_board *board, enum mill_rank_stage stage);
void mill_board_memory(mill_board *board, enum mill_purpose purpose, size_t bytes);
void mill_board_failed(mill_board *board, int code, const char *message);

/** On rank 0, estimate how many rows are done by all ranks and earlier runs, and how many failed.
 *  The other ranks are taken to be as fast as before the last meeting. */
void mill_board_count(mill_board *board, int64_t *n_done, int64_t *n_failed);

/** Send the last state of every rank to rank 0.  Collective.  MILL_ERR_MPI. */
int mill_board_settle(mill_board *board, const mill_mpi *mpi);

/** States [n_rank] of the ranks; call it on rank 0 after mill_board_settle. */
const mill_rank_state *mill_board_ranks(const mill_board *board, int *n_rank);

/** Free the board, which may be NULL.  Rank 0 first writes the last status, unless end is NULL. */
void mill_board_free(mill_board *board, const mill_board_end *end);
