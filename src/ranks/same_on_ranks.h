/* SPDX-License-Identifier: BSD-3-Clause */
/** Checks that settings from each rank's command line and files agree. */
#ifndef MILL_SAME_ON_RANKS_H
#define MILL_SAME_ON_RANKS_H

#include <stddef.h>

#include "src/ranks/mpi_context.h"

/** Compare a text of lines with that of rank 0.
 *
 *  what  what differs then, in the plural: "settings"
 *  text  not NULL
 *
 *  Collective; the same code on every rank: MILL_ERR_CONFIG with the first rank that differs, both
 *  hosts and the first line that differs; MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_same_on_ranks(const mill_mpi *mpi, const char *what, const char *text);

/** mill_resolve_links (src/system/file_roles.h) of rank 0, on every rank.  Collective; the same
 *  code on every rank, also MILL_ERR_MPI. */
int mill_resolve_links_for_all(const mill_mpi *mpi, const char *path, char *out, size_t size);

/** Take a and b to the first line in which they differ, n_a and n_b bytes long; to their ends
 *  where they do not. */
void mill_first_difference(const char **a, size_t *n_a, const char **b, size_t *n_b);

#endif
