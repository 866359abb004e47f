/* SPDX-License-Identifier: BSD-3-Clause */
/** The command line as the user may paste it again. */
#ifndef MILL_COMMAND_TEXT_H
#define MILL_COMMAND_TEXT_H

/** "starmill" and argv, quoted for a shell; before argv is permuted.  *out is to be freed with
 *  free.  MILL_ERR_MEMORY. */
int mill_command_text(int argc, char *const *argv, char **out);

#endif
