#include "src/system/file_roles.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/error.h"

enum { MAX_PATH = 4096, MAX_LINK = 40 };

/* Length of the folder's part of a path, with its slash; 0: none. */
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
    return MILL_ERROR(MILL_ERR_OUTPUT, "%.100s...: the path is longer than %zu bytes", path,
                      size - 1);
  memcpy(out, path, strlen(path) + 1);
  for (int i = 0; (n = readlink(out, target, sizeof target - 1)) >= 0; i++) {
    target[n] = '\0';
    const size_t folder = target[0] == '/' ? 0 : folder_length(out);
    if (i == MAX_LINK)
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s: too many links, one leads to the next", path);
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
    return MILL_ERROR(
        MILL_ERR_USAGE,
        "--%s %s is the name that --overwrite gives to what replaces %s: give another one; "
        "what a run with --overwrite has begun is continued by its own command",
        option, path, old);
  return MILL_OK;
}

/* The folder of a path, and its last part. */
static int look_at_name(const char *path, mill_file_identity *out)
{
  char folder[MAX_PATH];
  struct stat status;
  const size_t n = folder_length(path);
  if (strlen(path + n) >= sizeof out->name || n >= sizeof folder)
    return MILL_ERROR(MILL_ERR_USAGE, "a path of %zu bytes is too long: %.80s...", strlen(path),
                      path);
  memcpy(folder, path, n);
  folder[n] = '\0';
  memcpy(out->name, path + n, strlen(path + n) + 1);
  out->has_folder = stat(n ? folder : ".", &status) == 0;
  if (out->has_folder) {
    out->folder_device = (uint64_t)status.st_dev;
    out->folder_inode = (uint64_t)status.st_ino;
  }
  return MILL_OK;
}

static int look_at(const char *path, mill_file_identity *out)
{
  char end[MAX_PATH];
  struct stat status;
  memset(out, 0, sizeof *out);
  out->exists = stat(path, &status) == 0;
  if (out->exists) {
    out->device = (uint64_t)status.st_dev;
    out->inode = (uint64_t)status.st_ino;
  }
  /* a circle of links has no end: the job that opens it says so */
  const int is_resolved = mill_resolve_links(path, end, sizeof end) == MILL_OK;
  return look_at_name(is_resolved ? end : path, out);
}

/* Does the name belong to a written one: is it that, or made with it? */
static int belongs_to(const char *name, const char *written)
{
  const size_t n = strlen(written);
  if (strncmp(name, written, n) != 0)
    return 0;
  name += n;
  return !*name || strcmp(name, ".lock") == 0 || strcmp(name, ".tmp") == 0 ||
         strcmp(name, MILL_NEW_END) == 0 || strncmp(name, ".tmp-", 5) == 0;
}

static int is_same_folder(const mill_file_identity *a, const mill_file_identity *b)
{
  return a->has_folder && b->has_folder && a->folder_device == b->folder_device &&
         a->folder_inode == b->folder_inode;
}

static int is_same_number(const mill_file_identity *a, int exists, uint64_t device, uint64_t inode)
{
  return a->exists && exists && a->device == device && a->inode == inode;
}

#define REFUSED(what, path, i)                                                                     \
  MILL_ERROR(MILL_ERR_USAGE, "%s %s and %s %s are one file: give another name for one of them",    \
             (what), (path), roles->written[i].option, roles->written[i].path)
#define REFUSED_NAME(what, path, option, owner)                                                    \
  MILL_ERROR(MILL_ERR_USAGE, "%s %s is a name that %s %s needs: give another one", (what), (path), \
             (option), (owner))

static int compare(const mill_file_roles *roles, const char *what, const char *path,
                   const mill_file_identity *file)
{
  for (int i = 0; i < roles->n; i++) {
    const mill_file_identity *other = &roles->written[i].identity;
    const int same_folder = is_same_folder(file, other);
    if (is_same_number(other, file->exists, file->device, file->inode) ||
        (same_folder && strcmp(file->name, other->name) == 0))
      return REFUSED(what, path, i);
    if (same_folder && belongs_to(file->name, other->name))
      return REFUSED_NAME(what, path, roles->written[i].option, roles->written[i].path);
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
    return MILL_ERROR(MILL_ERR_INTERNAL, "more than %d written files", MILL_MAX_WRITTEN);
  MILL_CHECK(look_at(path, &file));
  MILL_CHECK(compare(roles, option, path, &file));
  for (int i = 0; i < roles->n; i++)
    if (is_same_folder(&file, &roles->written[i].identity) &&
        belongs_to(roles->written[i].identity.name, file.name))
      return REFUSED_NAME(roles->written[i].option, roles->written[i].path, option, path);
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

int mill_file_roles_read_known(const mill_file_roles *roles, const char *what, const char *path,
                               int exists, uint64_t device, uint64_t inode)
{
  for (int i = 0; i < roles->n; i++) {
    if (is_same_number(&roles->written[i].identity, exists, device, inode))
      return REFUSED(what, path, i);
    /* the folder is looked at only where the name gives reason to */
    if (belongs_to(path + folder_length(path), roles->written[i].identity.name))
      MILL_CHECK(mill_file_roles_read(roles, what, path));
  }
  return MILL_OK;
}
