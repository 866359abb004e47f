#include "jobs/doctor/doctor_output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "io/files/lock_file.h"
#include "io/hdf5/parallel_hdf5.h"
#include "kernels/base/error.h"
#include "kernels/base/clock.h"

enum {
  EXIT_OUTPUT = 4,
  LARGE_BYTES = 64 << 20,
  BLOCK_BYTES = 4 << 20,
  N_SMALL = 32,
  RANK_ROWS = 256, /* of the collective file */
  N_VALUE = 8
};
static const double LITTLE_BYTES = 1e9;

typedef struct output_check {
  const mill_mpi *mpi;
  mill_findings *findings;
  char folder[MILL_MAX_PATH]; /* our own, below the one that is checked */
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
      {0x517B, "SMB"},         {0xFF534D42, "CIFS"},   {0x61756673, "aufs"},
      {0x5346414F, "AFS"},     {0x73757245, "Coda"},   {0xAAD7AAEA, "PanFS"},
      {0x7461636F, "OCFS2"},   {0x01161970, "GFS2"},   {0xFE534D42, "SMB2"},
      {0x6A656A63, "9p"},      {0x01021997, "9p"},
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (known[i].type == type)
      return known[i].name;
  return "other";
}

static void describe(output_check *check, const char *folder)
{
  struct statfs fs;
  struct statvfs space;
  mill_findings *f = check->findings;
  mill_finding_text(f, "output.folder", "%s", folder);
  if (statfs(folder, &fs) == 0) {
    const char *name = type_name((long)fs.f_type);
    mill_finding_text(f, "output.file_system", "%s", name);
    if (strcmp(name, "NFS") == 0 || strcmp(name, "SMB") == 0 || strcmp(name, "CIFS") == 0)
      mill_finding_warn(f, "ranks of several machines cannot write one file here together: run on "
                           "one machine, or write to a parallel file system (Lustre, GPFS, ...)");
    else if (strcmp(name, "tmpfs") == 0)
      mill_finding_warn(f, "this folder is memory: it counts as such, and is gone after a restart");
  }
  if (statvfs(folder, &space) == 0) {
    const double free_bytes = (double)space.f_bavail * (double)space.f_frsize;
    mill_finding_number(f, "output.free", 1e-9 * free_bytes, "GB");
    if (free_bytes < LITTLE_BYTES)
      mill_finding_warn(f, "little room: starmill fit --plan says how large the files get");
  }
}

static int make_folder(output_check *check, const char *folder)
{
  if (snprintf(check->folder, sizeof check->folder, "%s/starmill-doctor.XXXXXX", folder) >=
      (int)sizeof check->folder) {
    check->folder[0] = '\0';
    return MILL_ERROR(MILL_ERR_OUTPUT, "the name of the folder is too long");
  }
  if (!mkdtemp(check->folder)) {
    check->folder[0] = '\0';
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s cannot be written in: %s", folder, strerror(errno));
  }
  return MILL_OK;
}

static int fail_system(const char *what, const char *path)
{
  return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* Made, locked, renamed, removed: what lock files, status files and results need. */
static int try_small(output_check *check, double *per_s)
{
  int err = MILL_OK, fd = -1;
  char other[sizeof check->path + 8];
  const double start_s = mill_wall_s();
  for (int i = 0; i < N_SMALL; i++) {
    snprintf(check->path, sizeof check->path, "%s/small-%d", check->folder, i);
    snprintf(other, sizeof other, "%s.renamed", check->path);
    fd = open(check->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
      MILL_TRY(fail_system("create", check->path));
    if (write(fd, "starmill\n", 9) != 9)
      MILL_TRY(fail_system("write", check->path));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
      MILL_TRY(fail_system("lock", check->path));
    close(fd);
    fd = -1;
    if (rename(check->path, other) != 0)
      MILL_TRY(fail_system("rename", check->path));
    if (unlink(other) != 0)
      MILL_TRY(fail_system("remove", other));
  }
  const double spent_s = mill_wall_s() - start_s;
  *per_s = spent_s > 0 ? N_SMALL / spent_s : 0;
done:
  if (fd >= 0) {
    close(fd);
    unlink(check->path);
  }
  return err;
}

/* Bytes a second of writing to the disk, and of reading it back. */
static int try_large(output_check *check, double *write_rate, double *read_rate)
{
  int err = MILL_OK, fd = -1;
  char *block = NULL;
  MILL_TRY(MILL_ALLOC(BLOCK_BYTES, &block));
  for (int i = 0; i < BLOCK_BYTES; i++) /* nothing that a file system stores as a hole */
    block[i] = (char)((unsigned)i * 7919u >> 5);
  snprintf(check->path, sizeof check->path, "%s/large", check->folder);
  fd = open(check->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0)
    MILL_TRY(fail_system("create", check->path));
  double start_s = mill_wall_s();
  for (size_t at = 0; at < LARGE_BYTES;) {
    const ssize_t n = write(fd, block, BLOCK_BYTES);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      MILL_TRY(fail_system("write", check->path));
    at += (size_t)n;
  }
  if (fsync(fd) != 0)
    MILL_TRY(fail_system("flush", check->path));
  *write_rate = LARGE_BYTES / (mill_wall_s() - start_s);
  /* from the disk and not from the page cache, where the system listens */
  (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  if (lseek(fd, 0, SEEK_SET) != 0)
    MILL_TRY(fail_system("go back in", check->path));
  start_s = mill_wall_s();
  for (ssize_t n = 1; n != 0;) {
    n = read(fd, block, BLOCK_BYTES);
    if (n < 0 && errno != EINTR)
      MILL_TRY(fail_system("read", check->path));
  }
  *read_rate = LARGE_BYTES / (mill_wall_s() - start_s);
done:
  if (fd >= 0) {
    close(fd);
    unlink(check->path);
  }
  mill_free(block);
  return err;
}

/* A measurement, or why there is none. */
static void report(mill_findings *f, const char *key, int err, double value, const char *unit,
                   const char *advice)
{
  if (err == MILL_OK) {
    mill_finding_number(f, key, value, unit);
  } else {
    mill_finding_text(f, key, "failed");
    mill_finding_fail(f, EXIT_OUTPUT, "%s; %s", mill_error_message(), advice);
  }
}

static void check_alone(output_check *check, int with_rates, unsigned limit_s)
{
  mill_findings *f = check->findings;
  double per_s = 0, write_rate = 0, read_rate = 0;
  begin_step("making and renaming files", limit_s);
  int err = try_small(check, &per_s);
  report(f, "output.small_files", err, per_s, "made, locked, renamed and removed a second",
         "a run needs files that can be locked and renamed here");
  end_step();
  if (!with_rates)
    return;
  begin_step("writing 64 MiB", limit_s);
  err = try_large(check, &write_rate, &read_rate);
  report(f, "output.write_rate", err, 1e-6 * write_rate, "MB/s, to the disk",
         "make room, or choose another folder");
  if (err == MILL_OK)
    mill_finding_number(f, "output.read_rate", 1e-6 * read_rate, "MB/s");
  end_step();
}

/* ---- all ranks ---- */

static double value_of(int64_t row, int k)
{
  return (double)row * 1.25 + k;
}

static int create_file(const char *path, int64_t n_row)
{
  int err = MILL_OK;
  hid_t file = H5I_INVALID_HID;
  const double missing = -1.0;
  MILL_TRY(mill_ph5_create(path, n_row * N_VALUE * 8, &file));
  MILL_TRY(mill_ph5_dataset(file, path, "values", H5T_IEEE_F64LE, 2, n_row, N_VALUE, &missing, "",
                            "of doctor"));
done:
  if (file >= 0) {
    const int closed = mill_ph5_close(path, &file);
    err = err == MILL_OK ? closed : err;
  }
  return err;
}

/* Every rank's rows, written in one call; or read: those of the next rank. */
static int move_rows(const output_check *check, int is_write, double *value)
{
  int err = MILL_OK, closed = MILL_OK;
  const mill_mpi *mpi = check->mpi;
  const int64_t n_row = (int64_t)RANK_ROWS * mpi->size;
  const int64_t first = (int64_t)RANK_ROWS * ((mpi->rank + !is_write) % mpi->size);
  hid_t file = H5I_INVALID_HID, dataset = H5I_INVALID_HID;
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  err = mill_ph5_open(check->path, is_write ? H5F_ACC_RDWR : H5F_ACC_RDONLY, mpi->comm, &file);
  MILL_TRY(mill_mpi_agree(mpi, err));
  err = mill_ph5_open_dataset(file, check->path, "values", H5T_IEEE_F64LE, 2, n_row, N_VALUE,
                              &dataset);
  if (err == MILL_OK)
    err = mill_ph5_select_range(check->path, 2, n_row, N_VALUE, first, RANK_ROWS, &rows);
  MILL_TRY(mill_mpi_agree(mpi, err));
  err = is_write ? mill_ph5_write(dataset, check->path, "values", H5T_NATIVE_DOUBLE, &rows, value)
                 : mill_ph5_read(dataset, check->path, "values", H5T_NATIVE_DOUBLE, &rows, value);
  for (int64_t i = 0; !is_write && err == MILL_OK && i < RANK_ROWS * N_VALUE; i++)
    if (value[i] != value_of(first + i / N_VALUE, (int)(i % N_VALUE)))
      err = MILL_ERROR(MILL_ERR_OUTPUT,
                       "rank %d does not read what rank %d has written: the file system is not "
                       "coherent between ranks",
                       mpi->rank, (mpi->rank + 1) % mpi->size);
  MILL_TRY(mill_mpi_agree(mpi, err));
done:
  mill_ph5_unselect(&rows);
  if (dataset >= 0)
    H5Dclose(dataset);
  /* collective: open on all ranks, or on none, unless opening itself has failed */
  if (file >= 0)
    closed = mill_ph5_close(check->path, &file);
  return err == MILL_OK ? closed : err;
}

static int write_together(output_check *check, double *wall_s)
{
  int err = MILL_OK;
  const mill_mpi *mpi = check->mpi;
  double *value = NULL;
  const double start_s = mill_wall_s();
  snprintf(check->path, sizeof check->path, "%s/together.h5", check->folder);
  if (mpi->rank == 0)
    err = create_file(check->path, (int64_t)RANK_ROWS * mpi->size);
  if (err == MILL_OK)
    err = MILL_ALLOC(RANK_ROWS * N_VALUE, &value);
  MILL_TRY(mill_mpi_agree(mpi, err));
  for (int i = 0; i < RANK_ROWS * N_VALUE; i++)
    value[i] = value_of((int64_t)RANK_ROWS * mpi->rank + i / N_VALUE, i % N_VALUE);
  MILL_TRY(mill_mpi_agree(mpi, move_rows(check, 1, value)));
  memset(value, 0, RANK_ROWS * N_VALUE * sizeof *value);
  MILL_TRY(mill_mpi_agree(mpi, move_rows(check, 0, value)));
  *wall_s = mill_wall_s() - start_s;
done:
  mill_free(value);
  return err;
}

static int check_together(output_check *check, unsigned limit_s)
{
  int err = MILL_OK;
  double wall_s = 0;
  begin_step("writing one HDF5 file with all ranks", limit_s);
  err = write_together(check, &wall_s);
  end_step();
  if (err == MILL_ERR_MPI || check->mpi->rank != 0)
    return err;
  report(check->findings, "output.collective_write", err, 1e3 * wall_s,
         "ms to make, write, flush and read a small file with all ranks",
         "a parallel HDF5 of the MPI that starts the ranks, and a file system that all ranks "
         "share, are needed (docs/use/install.md)");
  unlink(check->path);
  return MILL_OK;
}

int mill_doctor_output(const mill_mpi *mpi, const char *folder, int with_rates, unsigned limit_s,
                       mill_findings *findings)
{
  int err = MILL_OK;
  output_check *check = NULL;
  MILL_TRY(mill_mpi_agree(mpi, MILL_ALLOC(1, &check)));
  check->mpi = mpi;
  check->findings = findings;
  if (mpi->rank == 0) {
    begin_step("looking at the folder", limit_s);
    describe(check, folder);
    if (make_folder(check, folder) != MILL_OK) {
      mill_finding_text(findings, "output.writable", "no");
      mill_finding_fail(findings, EXIT_OUTPUT, "%s; create it, or make it writable",
                        mill_error_message());
    }
    end_step();
    if (check->folder[0])
      check_alone(check, with_rates, limit_s);
  }
  MILL_MPI(MPI_Bcast(check->folder, (int)sizeof check->folder, MPI_CHAR, 0, mpi->comm));
  if (check->folder[0])
    MILL_TRY(mill_mpi_agree(mpi, check_together(check, limit_s)));
done:
  if (check && check->folder[0] && mpi->rank == 0)
    rmdir(check->folder);
  mill_free(check);
  return err;
}
