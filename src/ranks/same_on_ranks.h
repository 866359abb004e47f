/* SPDX-License-Identifier: BSD-3-Clause */
/** Comparison of all ranks' settings. */
#pragma once

#include "src/ranks/mpi_context.h"

/** Compare a text with rank 0's, line by line.
 *
 *  what  name of the texts in the message, in the plural: "settings"
 *  text  not NULL
 *
 *  Collective; all ranks return the same code.  MILL_ERR_CONFIG names the first rank that differs,
 *  both hosts and the first line that differs; MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_same_on_ranks(const mill_mpi *mpi, const char *what, const char *text);

/** Call mill_resolve_links (src/system/file_roles.h) on rank 0 and send its result to all ranks.
 *  Collective; all ranks return the same code of mill_resolve_links, or MILL_ERR_MPI. */
int mill_resolve_links_for_all(const mill_mpi *mpi, const char *path, char *out, size_t size);

/** Move *a and *b to the first line in which the texts differ, and set *n_a and *n_b to that line's
 *  lengths in bytes.  If no line differs, move both to their ends. */
void mill_first_difference(const char **a, size_t *n_a, const char **b, size_t *n_b);
