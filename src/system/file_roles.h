/* SPDX-License-Identifier: BSD-3-Clause */
/** Checks that no file has two roles (output, log, input, ...) in one command.
 *
 *  Before a job opens or makes any file, it names all files that it will write, then all that it
 *  will read.  Existing files are compared by device and inode, so that links are found; other
 *  files by folder and name.  A written NAME also reserves NAME.lock, NAME.new, NAME.tmp and
 *  NAME.tmp-... in its folder. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/** Suffix of the file that --overwrite writes until it replaces the old one. */
#define MILL_NEW_END ".new"

enum { MILL_MAX_WRITTEN = 8, MILL_MAX_FILE_NAME = 256 };

/** Identity of a file or folder, from stat. */
typedef struct mill_file_number {
  int is_there;
  uint64_t device, inode;
} mill_file_number;

/** A file by its device and inode, and by its folder and name. */
typedef struct mill_file_identity {
  mill_file_number file, folder;
  char name[MILL_MAX_FILE_NAME]; /**< name in folder, after following links */
} mill_file_identity;

/** Files to write that the job has named so far.  Zero this struct first; texts are borrowed. */
typedef struct mill_file_roles {
  int n;
  struct {
    const char *option, *path;
    mill_file_identity identity;
  } written[MILL_MAX_WRITTEN];
} mill_file_roles;

/** Name a file to write; path NULL: not given.  option: for messages, "--status" or "the status
 *  file".  MILL_ERR_USAGE for an empty or too long path, or if an earlier call named the file. */
int mill_file_roles_write(mill_file_roles *roles, const char *option, const char *path);

/** Check a file that will be read; path NULL or empty: none.  what: for messages, "the input".
 *  MILL_ERR_USAGE if the file is one of the written files; the message names both. */
int mill_file_roles_read(const mill_file_roles *roles, const char *what, const char *path);

/** Like mill_file_roles_read.  exists, device, inode: from a stat(), perhaps on another host. */
int mill_file_roles_read_known(const mill_file_roles *roles, const char *what, const char *path,
                               int exists, uint64_t device, uint64_t inode);

/** Refuse the output name OLD.new if OLD exists: --overwrite of OLD uses OLD.new as temporary
 *  file.  option: "output", without its dashes.  MILL_ERR_USAGE. */
int mill_refuse_new(const char *path, const char *option);

/** Follow the links of a path to the file that would be written, which need not exist, so that
 *  renaming replaces the file, not a link.  MILL_ERR_OUTPUT: too many links, or out too small. */
int mill_resolve_links(const char *path, char *out, size_t size);
