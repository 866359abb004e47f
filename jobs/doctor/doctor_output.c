/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/doctor/doctor_output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "io/files/lock_file.h"
#include "io/hdf5/output_file.h"
#include "src/system/regular_file.h"

enum { EXIT_OUTPUT = 4, RANK_ROWS = 256 /* rows of each rank in the common file */, N_VALUE = 8 };
static const double LITTLE_BYTES = 1e9;

typedef struct output_check {
  const mill_mpi *mpi;
  mill_doctor_report *report;
  char folder[MILL_MAX_PATH]; /* temporary subfolder of the checked folder */
  char path[MILL_MAX_PATH + 32];
} output_check;

/* ---- a file system that does not answer ---- */

static const char *volatile step;

static void give_up(int number)
{
  static const char head[] = "starmill doctor: no answer from the output folder: ";
  static const char tail[] = ": the file system hangs, or a rank is gone\n";
  (void)number;
  if (write(STDERR_FILENO, head, sizeof head - 1) < 0 ||
      write(STDERR_FILENO, step, strlen(step)) < 0 ||
      write(STDERR_FILENO, tail, sizeof tail - 1) < 0)
    _exit(EXIT_OUTPUT);
  _exit(EXIT_OUTPUT);
}

static void begin_step(const char *name, unsigned limit_s)
{
  step = name;
  signal(SIGALRM, give_up);
  alarm(limit_s);
}

static void end_step(void)
{
  alarm(0);
}

/* ---- one rank ---- */

static const char *type_name(long type)
{
  static const struct {
    long type;
    const char *name;
  } known[] = {
      {0xEF53, "ext4"},        {0x58465342, "XFS"},    {0x9123683E, "Btrfs"},
      {0x01021994, "tmpfs"},   {0x6969, "NFS"},        {0x0BD00BD0, "Lustre"},
      {0x47504653, "GPFS"},    {0x19830326, "BeeGFS"}, {0x00C36400, "CephFS"},
      {0x794C7630, "overlay"}, {0x65735546, "FUSE"},   {0x2FC12FC1, "ZFS"},
      {0x517B, "SMB"},         {0xFF534D42, "CIFS"},   {0xFE534D42, "SMB2"},
      {0xAAD7AAEA, "PanFS"},
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (known[i].type == type)
      return known[i].name;
  return "other";
}

/* Report the folder's file system and free space, and warn of unsuitable ones. */
static void describe(output_check *check, const char *folder)
{
  struct statfs fs;
  struct statvfs space;
  mill_doctor_report *r = check->report;
  mill_doctor_say(r, "output.folder", "%s", folder);
  if (statfs(folder, &fs) == 0) {
    const char *name = type_name((long)fs.f_type);
    mill_doctor_say(r, "output.file_system", "%s", name);
    if (strcmp(name, "NFS") == 0 || strncmp(name, "SMB", 3) == 0 || strcmp(name, "CIFS") == 0)
      mill_doctor_warn(r, "ranks on several machines cannot write one file in this folder: run on "
                          "one machine, or write to a parallel file system (Lustre, GPFS, ...)");
    else if (strcmp(name, "tmpfs") == 0)
      mill_doctor_warn(r, "this folder is in memory: its files use RAM and are lost on restart");
  }
  if (statvfs(folder, &space) == 0) {
    const double free_bytes = (double)space.f_bavail * (double)space.f_frsize;
    mill_doctor_say(r, "output.free", "%.4g GB", 1e-9 * free_bytes);
    if (free_bytes < LITTLE_BYTES)
      mill_doctor_warn(r, "little space: starmill fit --plan estimates the size of the files");
  }
}

static int make_folder(output_check *check, const char *folder)
{
  const int n = snprintf(check->folder, sizeof check->folder, "%s/starmill-doctor.XXXXXX", folder);
  if (n < (int)sizeof check->folder && mkdtemp(check->folder))
    return MILL_OK;
  check->folder[0] = '\0';
  return MILL_ERROR(MILL_ERR_OUTPUT, "cannot write in %s: %s", folder,
                    n < (int)MILL_MAX_PATH ? strerror(errno) : "its name is too long");
}

/* Make, lock, rename and remove a file, as runs do with lock files, status files and results. */
static int try_small(output_check *check)
{
  int err = MILL_OK;
  const char *failed = NULL;
  char other[sizeof check->path + 8];
  snprintf(check->path, sizeof check->path, "%s/small", check->folder);
  snprintf(other, sizeof other, "%s.renamed", check->path);
  const int fd = open(check->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0)
    failed = "create";
  else if (write(fd, "starmill\n", 9) != 9)
    failed = "write";
  else if (flock(fd, LOCK_EX | LOCK_NB) != 0)
    failed = "lock";
  else if (rename(check->path, other) != 0)
    failed = "rename";
  else if (unlink(other) != 0)
    failed = "remove";
  if (failed)
    err = MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot %s: %s", check->path, failed, strerror(errno));
  if (fd >= 0)
    close(fd);
  if (failed)
    unlink(check->path);
  return err;
}

static void say_result(mill_doctor_report *report, const char *key, int err, const char *works,
                       const char *advice)
{
  mill_doctor_say(report, key, "%s", err == MILL_OK ? works : "failed");
  if (err != MILL_OK)
    mill_doctor_fail(report, EXIT_OUTPUT, "%s; %s", mill_error_message(), advice);
}

/* Rank 0: check that a subfolder can be made, and that files in it can be locked and renamed. */
static void check_alone(output_check *check, const char *folder, unsigned limit_s)
{
  begin_step("looking at the folder", limit_s);
  describe(check, folder);
  if (make_folder(check, folder) != MILL_OK)
    say_result(check->report, "output.writable", MILL_ERR_OUTPUT, "",
               "create it, or make it writable");
  end_step();
  if (!check->folder[0])
    return;
  begin_step("making and renaming files", limit_s);
  say_result(check->report, "output.files", try_small(check), "made, locked, renamed and removed",
             "a run must lock and rename files in its output folder: choose another folder");
  end_step();
}

/* ---- all ranks ---- */

static double value_of(int64_t row, int k)
{
  return (double)row * 1.25 + k;
}

static int make_file(const char *path, off_t n_byte)
{
  MILL_AT_END(mill_descriptor_close)
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0 || ftruncate(fd, n_byte) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot create: %s", path, strerror(errno));
  return MILL_OK;
}

/* Write this rank's rows of the common file (is_write), or read and check the next rank's rows. */
static int move_rows(const output_check *check, int is_write, double *value)
{
  MILL_AT_END(mill_descriptor_close) int fd = -1;
  const mill_mpi *mpi = check->mpi;
  const size_t n_byte = RANK_ROWS * N_VALUE * sizeof *value;
  const int writer = is_write ? mpi->rank : (mpi->rank + 1) % mpi->size; /* of the rows */
  const int64_t first = (int64_t)RANK_ROWS * writer;
  const off_t at = first * N_VALUE * (off_t)sizeof *value;
  MILL_CHECK(mill_output_check_shared(check->path, mpi));
  MILL_CHECK(mill_output_hold(check->path, &fd));
  if ((is_write ? pwrite(fd, value, n_byte, at) : pread(fd, value, n_byte, at)) != (ssize_t)n_byte)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot %s rows: %s", check->path,
                      is_write ? "write" : "read", strerror(errno));
  for (int64_t i = 0; !is_write && i < RANK_ROWS * N_VALUE; i++)
    if (value[i] != value_of(first + i / N_VALUE, (int)(i % N_VALUE)))
      return MILL_ERROR(
          MILL_ERR_OUTPUT,
          "rank %d does not see in the file what rank %d wrote: write to another file system",
          mpi->rank, writer);
  return MILL_OK;
}

/* Write one file from all ranks; each rank then reads back the next rank's rows. */
static int write_together(output_check *check)
{
  int code = MILL_OK;
  const mill_mpi *mpi = check->mpi;
  MILL_OWNED double *value = NULL;
  snprintf(check->path, sizeof check->path, "%s/together", check->folder);
  if (mpi->rank == 0)
    code = make_file(check->path, (off_t)(RANK_ROWS * N_VALUE * sizeof *value) * mpi->size);
  if (code == MILL_OK)
    code = MILL_ALLOC(RANK_ROWS * N_VALUE, &value);
  MILL_CHECK(mill_mpi_agree(mpi, code));
  for (int i = 0; i < RANK_ROWS * N_VALUE; i++)
    value[i] = value_of((int64_t)RANK_ROWS * mpi->rank + i / N_VALUE, i % N_VALUE);
  MILL_CHECK(mill_mpi_agree(mpi, move_rows(check, 1, value)));
  memset(value, 0, RANK_ROWS * N_VALUE * sizeof *value);
  return mill_mpi_agree(mpi, move_rows(check, 0, value));
}

static int check_together(output_check *check, unsigned limit_s)
{
  begin_step("writing one file with all ranks", limit_s);
  const int err = write_together(check);
  end_step();
  if (err == MILL_ERR_MPI)
    return err;
  if (check->mpi->rank == 0) {
    say_result(check->report, "output.collective_write", err, "written and read back by all ranks",
               "all ranks must share this folder");
    unlink(check->path);
  }
  return MILL_OK;
}

/* Failed checks go to the report; only failures of MPI and memory are returned.  check->folder is
 * empty if rank 0 could not make its subfolder: then no rank writes. */
int mill_doctor_output(const mill_mpi *mpi, const char *folder, unsigned limit_s,
                       mill_doctor_report *report)
{
  int err = MILL_OK;
  MILL_OWNED output_check *check = NULL;
  MILL_TRY(mill_mpi_agree(mpi, MILL_ALLOC(1, &check)));
  check->mpi = mpi;
  check->report = report;
  if (mpi->rank == 0)
    check_alone(check, folder, limit_s);
  MILL_MPI(MPI_Bcast(check->folder, (int)sizeof check->folder, MPI_CHAR, 0, mpi->comm));
  if (check->folder[0])
    MILL_TRY(mill_mpi_agree(mpi, check_together(check, limit_s)));
done:
  if (check && check->folder[0] && mpi->rank == 0)
    rmdir(check->folder);
  return err;
}
