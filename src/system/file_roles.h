/* SPDX-License-Identifier: BSD-3-Clause */
/** Checks that a file written by a command is not another of its files.
 *
 *  A job names its files one by one, before it opens or makes any: first all that it writes, then
 *  all that it reads.  Files are compared by what they are, so links are seen, and by folder and
 *  name where they are not there yet.  A written name also reserves NAME.lock, NAME.new, NAME.tmp
 *  and NAME.tmp-... in its folder.
 *
 *  A name costs a look or two at the file system; nothing is kept of those that are read.
 */
#ifndef MILL_FILE_ROLES_H
#define MILL_FILE_ROLES_H

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

/** A file by its number, and by its name in a folder. */
typedef struct mill_file_identity {
  mill_file_number file, folder;
  char name[MILL_MAX_FILE_NAME]; /**< links followed */
} mill_file_identity;

/** Written files so far; zeroed at first.  Options and paths are borrowed. */
typedef struct mill_file_roles {
  int n;
  struct {
    const char *option, *path;
    mill_file_identity identity;
  } written[MILL_MAX_WRITTEN];
} mill_file_roles;

/** option: as the user knows it, "--status" or "the status file".  path NULL: not given.
 *  MILL_ERR_USAGE for an empty path, one that is too long, or one that names another written
 *  file, and names both. */
int mill_file_roles_write(mill_file_roles *roles, const char *option, const char *path);

/** what: "--library", "the input".  path NULL or empty: not given.  MILL_ERR_USAGE when it is one
 *  of the written files, and names both. */
int mill_file_roles_read(const mill_file_roles *roles, const char *what, const char *path);

/** The same of a file that has been looked at: exists, device and inode are those of stat(). */
int mill_file_roles_read_known(const mill_file_roles *roles, const char *what, const char *path,
                               int exists, uint64_t device, uint64_t inode);

/** What --overwrite makes is one run's, under the lock of what it replaces: MILL_ERR_USAGE where
 * path is OLD.new and OLD is there.  option: "output", without its dashes. */
int mill_refuse_new(const char *path, const char *option);

/** Where a file is that is to be written at path: the end of its links, there or not, so that
 *  all names of one file have one lock, and what is renamed replaces no link.  A path that is no
 *  link stays as it is.  MILL_ERR_OUTPUT for too many links, or when out [size] is too small. */
int mill_resolve_links(const char *path, char *out, size_t size);

#endif
