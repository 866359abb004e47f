/* SPDX-License-Identifier: BSD-3-Clause */
/** Finished results of the parts of a survey, as a job array makes them, joined to one.
 *
 *  The parts must have been made with the same settings, library and device type, and from
 *  different inputs.  /fits and /catalog become those that one run over the inputs of all parts,
 *  in the order of the parts, would have made, bit for bit; /provenance is the first part's,
 *  with the commands and times of all.
 */
#ifndef MILL_RESULT_MERGE_H
#define MILL_RESULT_MERGE_H

#include <stdint.h>

/** Join part [n_part], at least one, to output, which gets its name when it is whole.  Memory
 *  does not grow with the rows, unless with_primary: then /catalog/PRIMARY is made
 *  (io/result/result_primary.h); that of a part is left out.  One rank alone, MPI running. command:
 *  for /provenance.
 *
 *  MILL_ERR_USAGE when the parts do not belong together, one is unfinished, or output is there
 *  and overwrite is not set; MILL_ERR_OUTPUT when a part cannot be read, or output not be
 *  written; MILL_ERR_MEMORY.  Parts are never changed. */
int mill_result_merge(const char *output, int overwrite, int with_primary, const char *command,
                      int n_part, const char *const *part, int64_t *n_row);

#endif
