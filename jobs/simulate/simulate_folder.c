#include "jobs/simulate/simulate_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "src/system/regular_file.h"

enum { MAX_FOLDER = 3900 /* bytes; names and suffixes follow */ };

/* ---- what lies there --------------------------------------------------------------------- */

/* Number of a file of a survey with this name, -1 when it is none; *rest what follows .fits. */
static int file_number(const char *name, int redrock, const char **rest)
{
  char own[MILL_SIMULATE_NAME];
  const size_t n_prefix = strcspn(name, "0123456789");
  char *end = NULL;
  errno = 0;
  const long number = strtol(name + n_prefix, &end, 10);
  if (errno != 0 || end == name + n_prefix || number < 0 || number > MILL_SIMULATE_MAX_FILE)
    return -1;
  mill_simulate_name((int)number, redrock, own);
  if (strncmp(name, own, strlen(own)) != 0)
    return -1;
  *rest = name + strlen(own);
  return (int)number;
}

/* What a file in the folder is to this survey. */
enum entry_kind {
  ENTRY_FOREIGN,   /* none of ours */
  ENTRY_LEFTOVER,  /* half made by a killed job */
  ENTRY_EXPECTED,  /* may belong to this survey: its header decides */
  ENTRY_UNEXPECTED /* of a survey, but not this one */
};

static enum entry_kind kind_of(const mill_simulate_plan *plan, const char *name)
{
  static const char *const single[] = {MILL_SIMULATE_TRUTH, MILL_SIMULATE_CATALOG};
  const char *rest = NULL;
  int is_expected = 0;
  for (int i = 0; i < 2; i++)
    if (strncmp(name, single[i], strlen(single[i])) == 0) {
      rest = name + strlen(single[i]);
      is_expected = 1;
    }
  for (int redrock = 0; redrock < 2 && !rest; redrock++) {
    const int number = file_number(name, redrock, &rest);
    is_expected = number < plan->n_file && (!redrock || plan->options.redrock);
  }
  if (rest && strncmp(rest, ".tmp-", 5) == 0)
    return ENTRY_LEFTOVER;
  if (!rest || *rest != '\0')
    return ENTRY_FOREIGN;
  return is_expected ? ENTRY_EXPECTED : ENTRY_UNEXPECTED;
}

/* Others have files of this name too, which must not be replaced. */
static int check_catalog(const mill_simulate_plan *plan)
{
  char path[MILL_MAX_PATH], line[80] = "";
  mill_simulate_path(plan, MILL_SIMULATE_CATALOG, path);
  FILE *file = fopen(path, "r");
  if (!file && errno == ENOENT)
    return MILL_OK;
  const int ours =
      file && fgets(line, sizeof line, file) && strcmp(line, MILL_SIMULATE_CATALOG_HEAD) == 0;
  if (file)
    fclose(file);
  if (!ours)
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s is there and not of starmill simulate: choose another folder", path);
  return MILL_OK;
}

/* Is the file at path of starmill simulate, by the history in its first header? */
static int check_own(const char *path)
{
  int err = MILL_OK, fd = -1;
  char head[4 * 2880 + 1];
  MILL_TRY(mill_regular_open(path, "a file of a mock survey", MILL_ERR_OUTPUT, &fd));
  const ssize_t n = read(fd, head, sizeof head - 1);
  head[n > 0 ? n : 0] = '\0';
  const char *history = strstr(head, "HISTORY starmill ");
  if (!history || !strstr(history, " simulate: a mock survey"))
    MILL_FAIL(MILL_ERR_OUTPUT,
              "%s is there and not of starmill simulate: choose another folder, or move it away",
              path);
done:
  if (fd >= 0)
    close(fd);
  return err;
}

static int remove_file(const char *path)
{
  return unlink(path) == 0 || errno == ENOENT
             ? MILL_OK
             : MILL_ERROR(MILL_ERR_OUTPUT, "%s cannot be removed: %s", path, strerror(errno));
}

/* Where the truth table lies, the survey is complete; so it goes before anything is changed. */
static int remove_truth(const mill_simulate_plan *plan)
{
  char path[MILL_MAX_PATH];
  mill_simulate_path(plan, MILL_SIMULATE_TRUTH, path);
  return remove_file(path);
}

/* What walk_folder does; the last two want the lock. */
enum walk {
  WALK_OWN,    /* refuse what only has a name of ours, before --overwrite removes a survey */
  WALK_LOOK,   /* refuse files of another survey */
  WALK_CLEAR,  /* and remove leftovers */
  WALK_REMOVE, /* remove leftovers and the survey */
};

static int walk_folder(const mill_simulate_plan *plan, enum walk walk)
{
  int err = MILL_OK;
  char path[MILL_MAX_PATH];
  const char *folder = plan->options.output;
  const struct dirent *entry;
  DIR *dir = opendir(folder);
  if (!dir)
    MILL_FAIL(MILL_ERR_OUTPUT, "--output %s: the folder cannot be read: %s", folder,
              strerror(errno));
  while ((entry = readdir(dir)) != NULL) {
    const char *name = entry->d_name;
    const enum entry_kind kind = kind_of(plan, name);
    const int is_leftover = kind == ENTRY_LEFTOVER;
    if (strlen(name) > 100 || kind == ENTRY_FOREIGN)
      continue;
    mill_simulate_path(plan, name, path);
    if (walk == WALK_OWN) {
      if (!is_leftover && strcmp(name, MILL_SIMULATE_CATALOG) != 0) /* see check_catalog */
        MILL_TRY(check_own(path));
    } else if (walk == WALK_REMOVE || (walk == WALK_CLEAR && is_leftover)) {
      MILL_TRY(remove_file(path));
    } else if (kind == ENTRY_UNEXPECTED) {
      MILL_FAIL(MILL_ERR_OUTPUT, "%s is of " MILL_SIMULATE_OTHER, path);
    }
  }
done:
  if (dir)
    closedir(dir);
  return err;
}

/* ---- the folder -------------------------------------------------------------------------- */

int mill_simulate_folder_check(const char *folder, int *is_new)
{
  struct stat status;
  *is_new = 0;
  if (strlen(folder) > MAX_FOLDER)
    return MILL_ERROR(MILL_ERR_USAGE, "--output: a path of %zu bytes is too long", strlen(folder));
  if (stat(folder, &status) != 0) {
    if (errno != ENOENT)
      return MILL_ERROR(MILL_ERR_OUTPUT, "--output %s: the folder cannot be used: %s", folder,
                        strerror(errno));
    *is_new = 1;
  } else if (!S_ISDIR(status.st_mode)) {
    return MILL_ERROR(MILL_ERR_OUTPUT, "--output %s exists and is no folder: choose another name",
                      folder);
  }
  return MILL_OK;
}

int mill_simulate_folder_free(const char *folder, double *n_byte)
{
  struct statvfs space;
  if (statvfs(folder, &space) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "--output %s: the free space cannot be found: %s", folder,
                      strerror(errno));
  *n_byte = (double)space.f_bavail * (double)space.f_frsize;
  return MILL_OK;
}

static int check_space(const char *folder, const mill_simulate_size *size)
{
  double n_free = 0;
  MILL_CHECK(mill_simulate_folder_free(folder, &n_free));
  if (n_free < (double)size->n_byte_left)
    return MILL_ERROR(
        MILL_ERR_OUTPUT,
        "--output %s: the survey needs %.3f GB more and %.3f GB are free: make room, choose "
        "another folder, or give fewer --stars",
        folder, (double)size->n_byte_left / 1e9, n_free / 1e9);
  return MILL_OK;
}

/* Rank 0: make the folder, take the lock, clear away what must go. */
static int claim(const mill_simulate_plan *plan, int is_new, mill_lock *lock)
{
  char path[MILL_MAX_PATH];
  const char *folder = plan->options.output;
  const int overwrite = plan->options.overwrite;
  if (is_new && mkdir(folder, 0777) != 0 && errno != EEXIST)
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "--output %s: the folder cannot be made: %s; create its parent first", folder,
                      strerror(errno));
  if (access(folder, W_OK | X_OK) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "--output %s: cannot write in the folder: %s", folder,
                      strerror(errno));
  mill_simulate_path(plan, MILL_SIMULATE_TRUTH, path);
  MILL_CHECK(mill_lock_take(path, lock));
  if (overwrite) {
    MILL_CHECK(walk_folder(plan, WALK_OWN));
    MILL_CHECK(remove_truth(plan));
  }
  return walk_folder(plan, overwrite ? WALK_REMOVE : WALK_CLEAR);
}

/* Rank 0: look, change nothing. */
static int look(const mill_simulate_plan *plan, int *is_new)
{
  MILL_CHECK(mill_simulate_folder_check(plan->options.output, is_new));
  MILL_CHECK(check_catalog(plan));
  if (!*is_new && !plan->options.overwrite)
    MILL_CHECK(walk_folder(plan, WALK_LOOK));
  return MILL_OK;
}

int mill_simulate_folder_prepare(const mill_mpi *mpi, const mill_simulate_plan *plan,
                                 mill_lock *lock, mill_simulate_size *size, int *complete)
{
  int err = MILL_OK;
  int is_new = 0;
  *complete = 0;
  MILL_TRY(mill_mpi_agree(mpi, mpi->rank == 0 ? look(plan, &is_new) : MILL_OK));
  MILL_MPI(MPI_Bcast(&is_new, 1, MPI_INT, 0, mpi->comm));
  /* a complete survey needs no lock, and may lie in a folder without write permission */
  if (!is_new && !plan->options.overwrite)
    MILL_TRY(mill_simulate_look_at_all(mpi, plan, size, complete));
  if (*complete)
    goto done;
  MILL_TRY(mill_mpi_agree(mpi, mpi->rank == 0 ? claim(plan, is_new, lock) : MILL_OK));
  /* again, for another job may have written until the lock was ours */
  MILL_TRY(mill_simulate_look_at_all(mpi, plan, size, complete));
  if (*complete)
    goto done;
  if (mpi->rank == 0)
    err = check_space(plan->options.output, size);
  if (mpi->rank == 0 && err == MILL_OK)
    err = remove_truth(plan);
  MILL_TRY(mill_mpi_agree(mpi, err));
done:
  return err;
}
