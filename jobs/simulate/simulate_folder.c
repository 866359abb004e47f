/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/simulate/simulate_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "src/system/regular_file.h"

enum { MAX_FOLDER = 3900 /* bytes; names and suffixes follow */ };

/* The suffix of a survey's file: "" or ".tmp-..."; NULL for other names. */
static const char *rest_of(const char *name)
{
  static const char *const numbered[] = {"coadd-mock-", "redrock-mock-"};
  static const char *const single[] = {MILL_SIMULATE_TRUTH, MILL_SIMULATE_CATALOG};
  const char *rest = NULL;
  for (int i = 0; i < 2; i++) {
    const size_t n = strlen(numbered[i]), n_digit = strspn(name + strnlen(name, n), "0123456789");
    if (strncmp(name, numbered[i], n) == 0 && n_digit >= 5 &&
        strncmp(name + n + n_digit, ".fits", 5) == 0)
      rest = name + n + n_digit + 5;
    if (strncmp(name, single[i], strlen(single[i])) == 0)
      rest = name + strlen(single[i]);
  }
  return rest && (!*rest || strncmp(rest, ".tmp-", 5) == 0) ? rest : NULL;
}

/* Does the file belong to this survey?  MILL_ERR_OUTPUT for one not made by starmill simulate. */
static int is_same(const mill_simulate_plan *plan, const char *path, int *same)
{
  static const char key[] = "MOCKID  = '"; /* a card, or in the catalog's first line */
  int fd = -1;
  char head[2880 + 1];
  MILL_CHECK(mill_regular_open(path, "a file of a mock survey", MILL_ERR_OUTPUT, &fd));
  const ssize_t n = read(fd, head, sizeof head - 1);
  close(fd);
  head[n > 0 ? n : 0] = '\0';
  const char *id = strstr(head, key);
  if (!id)
    return MILL_ERROR(
        MILL_ERR_OUTPUT,
        "%s exists and was not made by starmill simulate: choose another folder, or move it away",
        path);
  *same = strncmp(id + strlen(key), plan->id, MILL_SIMULATE_ID) == 0;
  return MILL_OK;
}

static int remove_file(const char *path)
{
  return unlink(path) == 0 || errno == ENOENT
             ? MILL_OK
             : MILL_ERROR(MILL_ERR_OUTPUT, "%s cannot be removed: %s", path, strerror(errno));
}

enum walk {
  WALK_LOOK,  /* refuse files of others, and those of another survey without --overwrite */
  WALK_CLEAR, /* remove leftovers, and with --overwrite the survey */
};

/* *n_file: files of this survey that are there; NULL: not asked. */
static int walk_folder(const mill_simulate_plan *plan, enum walk walk, int64_t *n_file)
{
  int err = MILL_OK, same = 0;
  char path[MILL_MAX_PATH];
  const char *folder = plan->options.output;
  const struct dirent *entry;
  DIR *dir = opendir(folder);
  if (!dir)
    MILL_FAIL(MILL_ERR_OUTPUT, "--output %s: the folder cannot be read: %s", folder,
              strerror(errno));
  while ((entry = readdir(dir)) != NULL) {
    const char *rest = rest_of(entry->d_name);
    if (!rest || strlen(entry->d_name) > 100)
      continue;
    mill_simulate_path(plan, entry->d_name, path);
    if (walk == WALK_CLEAR && (*rest || plan->options.overwrite))
      MILL_TRY(remove_file(path));
    if (walk == WALK_CLEAR || *rest)
      continue;
    MILL_TRY(is_same(plan, path, &same));
    if (!same && !plan->options.overwrite)
      MILL_FAIL(MILL_ERR_OUTPUT,
                "%s belongs to a survey with other settings: give its settings to continue it, "
                "another folder, or --overwrite to remove it",
                path);
    *n_file += same;
  }
done:
  if (dir)
    closedir(dir);
  return err;
}

/* Whether all files are there, once the folder is. */
static int look(const mill_simulate_plan *plan, int *complete)
{
  int64_t n_file = 0;
  MILL_CHECK(walk_folder(plan, WALK_LOOK, &n_file));
  *complete =
      !plan->options.overwrite && n_file == (int64_t)plan->n_file * (1 + plan->options.redrock) + 2;
  return MILL_OK;
}

/* Make the folder, take the lock, remove leftovers. */
static int claim(const mill_simulate_plan *plan, mill_lock *lock, int *complete)
{
  char path[MILL_MAX_PATH];
  const char *folder = plan->options.output;
  if (mkdir(folder, 0777) != 0 && errno != EEXIST)
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "--output %s: cannot make the folder: %s; create its parent first", folder,
                      strerror(errno));
  if (access(folder, W_OK | X_OK) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "--output %s: cannot write in the folder: %s", folder,
                      strerror(errno));
  mill_simulate_path(plan, MILL_SIMULATE_TRUTH, path);
  MILL_CHECK(mill_lock_take(path, lock));
  MILL_CHECK(look(plan, complete)); /* another job may have written until the lock was ours */
  if (*complete)
    return MILL_OK;
  MILL_CHECK(remove_file(path)); /* first, as it says that the survey is complete */
  return walk_folder(plan, WALK_CLEAR, NULL);
}

/* Rank 0. */
static int prepare(const mill_simulate_plan *plan, mill_lock *lock, int *complete)
{
  struct stat status;
  const char *folder = plan->options.output;
  if (strlen(folder) > MAX_FOLDER)
    return MILL_ERROR(MILL_ERR_USAGE, "--output: a path of %zu bytes is too long", strlen(folder));
  if (stat(folder, &status) == 0) {
    if (!S_ISDIR(status.st_mode))
      return MILL_ERROR(MILL_ERR_OUTPUT,
                        "--output %s exists and is not a folder: choose another name", folder);
    MILL_CHECK(look(plan, complete));
  } else if (errno != ENOENT) {
    return MILL_ERROR(MILL_ERR_OUTPUT, "--output %s: the folder cannot be used: %s", folder,
                      strerror(errno));
  }
  return *complete ? MILL_OK : claim(plan, lock, complete);
}

int mill_simulate_folder_prepare(const mill_mpi *mpi, const mill_simulate_plan *plan,
                                 mill_lock *lock, int *complete)
{
  *complete = 0;
  MILL_CHECK(mill_mpi_agree(mpi, mpi->rank == 0 ? prepare(plan, lock, complete) : MILL_OK));
  MILL_CHECK_MPI(MPI_Bcast(complete, 1, MPI_INT, 0, mpi->comm));
  return MILL_OK;
}

int mill_simulate_has(const mill_simulate_plan *plan, const char *name)
{
  char path[MILL_MAX_PATH];
  mill_simulate_path(plan, name, path);
  return access(path, F_OK) == 0;
}
