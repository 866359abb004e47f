/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/file_roles.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/error.h"

enum { MAX_PATH = 4096, MAX_LINK = 40 };

/* Return the length of a path's folder part with its slash; 0: no folder. */
static size_t folder_length(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash ? (size_t)(slash - path) + 1 : 0;
}

int mill_resolve_links(const char *path, char *out, size_t size)
{
  char target[MAX_PATH];
  ssize_t n;
  if (strlen(path) >= size)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%.100s...: the path is longer than %zu bytes; shorten it",
                      path, size - 1);
  memcpy(out, path, strlen(path) + 1);
  for (int i = 0; (n = readlink(out, target, sizeof target - 1)) >= 0; i++) {
    target[n] = '\0';
    const size_t folder = target[0] == '/' ? 0 : folder_length(out);
    if (i == MAX_LINK)
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s: too many levels of symbolic links", path);
    if (folder + (size_t)n >= size)
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s: a link to a path longer than %zu bytes", path,
                        size - 1);
    memcpy(out + folder, target, (size_t)n + 1);
  }
  return MILL_OK;
}

int mill_refuse_new(const char *path, const char *option)
{
  static const char end[] = MILL_NEW_END;
  char old[MAX_PATH];
  const size_t n = strlen(path), n_end = sizeof end - 1;
  if (n <= n_end || n >= sizeof old || strcmp(path + n - n_end, end) != 0)
    return MILL_OK;
  memcpy(old, path, n - n_end);
  old[n - n_end] = '\0';
  if (access(old, F_OK) == 0)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--%s %s is the temporary file of --overwrite for %s: give another name; "
                      "to continue a run begun with --overwrite, repeat its command",
                      option, path, old);
  return MILL_OK;
}

static mill_file_number number_of(const char *path)
{
  struct stat status;
  if (stat(path, &status) != 0)
    return (mill_file_number){0};
  return (mill_file_number){1, (uint64_t)status.st_dev, (uint64_t)status.st_ino};
}

static int is_same(const mill_file_number *a, const mill_file_number *b)
{
  return a->is_there && b->is_there && a->device == b->device && a->inode == b->inode;
}

/* Identify a file that may not exist: by its inode, its folder's inode and its name. */
static int look_at(const char *path, mill_file_identity *out)
{
  char end[MAX_PATH], folder[MAX_PATH];
  /* if links cannot be followed, take the path as given: opening the file will report the fault */
  if (mill_resolve_links(path, end, sizeof end) != MILL_OK)
    snprintf(end, sizeof end, "%s", path);
  const size_t n = folder_length(end);
  if (strlen(path) >= sizeof end || strlen(end + n) >= sizeof out->name)
    return MILL_ERROR(MILL_ERR_USAGE, "shorten the path of %zu bytes: %.80s...", strlen(path),
                      path);
  memcpy(folder, n > 0 ? end : "./", n > 0 ? n : 2);
  folder[n > 0 ? n : 2] = '\0';
  out->file = number_of(path);
  out->folder = number_of(folder);
  memcpy(out->name, end + n, strlen(end + n) + 1);
  return MILL_OK;
}

/* Is name `written`, or a name that the file `written` reserves (file_roles.h)? */
static int belongs_to(const char *name, const char *written)
{
  const size_t n = strlen(written);
  if (strncmp(name, written, n) != 0)
    return 0;
  name += n;
  return !*name || strcmp(name, ".lock") == 0 || strcmp(name, ".tmp") == 0 ||
         strcmp(name, MILL_NEW_END) == 0 || strncmp(name, ".tmp-", 5) == 0;
}

static int refuse_name(const char *what, const char *path, const char *option, const char *written)
{
  return MILL_ERROR(MILL_ERR_USAGE,
                    "%s %s is reserved for files that %s %s makes: give another name", what, path,
                    option, written);
}

/* Refuse a file that the job also writes, or whose name is reserved for one that the job writes. */
static int compare(const mill_file_roles *roles, const char *what, const char *path,
                   const mill_file_identity *file)
{
  for (int i = 0; i < roles->n; i++) {
    const char *option = roles->written[i].option, *written = roles->written[i].path;
    const mill_file_identity *other = &roles->written[i].identity;
    const int in_folder = is_same(&file->folder, &other->folder);
    if (is_same(&file->file, &other->file) || (in_folder && strcmp(file->name, other->name) == 0))
      return MILL_ERROR(MILL_ERR_USAGE,
                        "%s %s and %s %s are one file: give another name for one of them", what,
                        path, option, written);
    if (in_folder && belongs_to(file->name, other->name))
      return refuse_name(what, path, option, written);
  }
  return MILL_OK;
}

int mill_file_roles_write(mill_file_roles *roles, const char *option, const char *path)
{
  mill_file_identity file;
  if (!path)
    return MILL_OK;
  if (!*path)
    return MILL_ERROR(MILL_ERR_USAGE, "%s takes the name of a file, not an empty text", option);
  if (roles->n == MILL_MAX_WRITTEN)
    return MILL_BUG("more than %d written files", MILL_MAX_WRITTEN);
  MILL_CHECK(look_at(path, &file));
  MILL_CHECK(compare(roles, option, path, &file));
  /* the new file must not reserve the name of a written file */
  for (int i = 0; i < roles->n; i++)
    if (is_same(&file.folder, &roles->written[i].identity.folder) &&
        belongs_to(roles->written[i].identity.name, file.name))
      return refuse_name(roles->written[i].option, roles->written[i].path, option, path);
  roles->written[roles->n].option = option;
  roles->written[roles->n].path = path;
  roles->written[roles->n++].identity = file;
  return MILL_OK;
}

int mill_file_roles_read(const mill_file_roles *roles, const char *what, const char *path)
{
  mill_file_identity file;
  if (!path || !*path)
    return MILL_OK;
  MILL_CHECK(look_at(path, &file));
  return compare(roles, what, path, &file);
}

/* Read the path's identity from disk only if its name, or its device and inode, are those of a file
 * that the job writes.  Device and inode of a file on another host may agree by chance. */
int mill_file_roles_read_known(const mill_file_roles *roles, const char *what, const char *path,
                               int exists, uint64_t device, uint64_t inode)
{
  const mill_file_number file = {exists, device, inode};
  for (int i = 0; i < roles->n; i++)
    if (is_same(&roles->written[i].identity.file, &file) ||
        belongs_to(path + folder_length(path), roles->written[i].identity.name))
      return mill_file_roles_read(roles, what, path);
  return MILL_OK;
}
