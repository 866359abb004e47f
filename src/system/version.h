/* SPDX-License-Identifier: BSD-3-Clause */
/** Version of starmill: printed by --version and written to every file. */
#pragma once

/** "0.1.0" */
const char *mill_version(void);

/** Return the Git revision that was built, "1a2b3c4d5e6f" or "v0.1.0-3-g1a2b3c4d5e6f", with
 *  "-dirty" if the source differed from that revision; "unknown" outside a repository. */
const char *mill_version_revision(void);

/** Compiler, "gcc 12.2.0". */
const char *mill_version_compiler(void);
