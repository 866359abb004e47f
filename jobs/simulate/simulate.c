#include "jobs/simulate/simulate.h"

#include <dirent.h>
#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "io/mock/desi_write.h"
#include "io/hdf5/hdf5_probe.h"
#include "io/library/library_file.h"
#include "io/files/lock_file.h"
#include "jobs/simulate/simulate_options.h"
#include "jobs/simulate/simulate_rows.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "src/system/log.h"
#include "src/mock/mock_survey.h"
#include "src/ranks/mpi_context.h"
#include "src/system/progress.h"
#include "src/system/regular_file.h"
#include "src/system/stop_signal.h"
#include "src/system/version.h"

enum {
  BLOCK_ROWS = 4, /* made and written at once by a thread; writes of 1.8 MB are fast enough */
  TRUTH_ROWS = 4096,
  N_HISTORY = 6,
  HISTORY_SIZE = 240,
  NAME_SIZE = 40,
  MAX_FOLDER = 3900 /* bytes; names and suffixes follow */
};

static const char catalog_head[] = "# by starmill simulate, for starmill fit --catalog\n";

/* Memory of one thread. */
typedef struct worker {
  mill_mock_work *work;
  float *flux[MILL_MOCK_N_ARM], *ivar[MILL_MOCK_N_ARM]; /* [BLOCK_ROWS][n_pix] */
  int32_t *mask[MILL_MOCK_N_ARM];                       /* [BLOCK_ROWS][n_pix] */
  float *scratch;                                       /* [twice the largest n_pix] */
} worker;

/* Sizes of all files together, and how many are there already. */
typedef struct survey_size {
  int64_t n_byte, n_byte_left;
  int64_t n_file_kept, n_row_left;
} survey_size;

typedef struct simulate_job {
  mill_mpi mpi;
  mill_simulate_options options;
  mill_library lib; /* of the source emulator */
  mill_lock lock;   /* rank 0 */
  int n_thread, n_file;
  int64_t file_bytes[2][2]; /* coadd, redrock; of the last file, of all others */
  double *wave_aa[MILL_MOCK_N_ARM];
  mill_desi_write_arm arm[MILL_MOCK_N_ARM];
  char history[N_HISTORY][HISTORY_SIZE]; /* what makes the survey what it is */
  int n_label;
  const char *label_column[MILL_MAX_LABEL], *label_unit[MILL_MAX_LABEL];
  int i_teff;                /* label of Teff, -1: none */
  char *file_name;           /* [n_file][NAME_SIZE] */
  const char **file_name_of; /* [n_file] */
  mill_mock_survey *survey;
  worker *worker; /* [n_thread] */
  mill_progress progress;
  int64_t n_row_mine, n_row_made; /* of this rank: to be made, made */
  /* the first failure of any thread */
  int failed;
  char message[1024];
  int stopping;
} simulate_job;

/* ---- names and identity ------------------------------------------------------------------ */

static void survey_path(const simulate_job *job, const char *name, char *out, size_t size)
{
  const char *folder = job->options.output;
  const size_t n = strlen(folder);
  snprintf(out, size, "%s%s%s", folder, n > 0 && folder[n - 1] == '/' ? "" : "/", name);
}

static void coadd_name(int i_file, char *out, size_t size)
{
  snprintf(out, size, "coadd-mock-%05d.fits", i_file);
}

static void redrock_name(int i_file, char *out, size_t size)
{
  snprintf(out, size, "redrock-mock-%05d.fits", i_file);
}

static int64_t file_rows(const simulate_job *job, int i_file)
{
  const int64_t n_left = job->options.mock.n_star - (int64_t)i_file * job->options.per_file;
  return n_left < job->options.per_file ? n_left : job->options.per_file;
}

/* The shortest text that is read back as the same number: what differs must look different. */
static const char *exact(double value, char *out, size_t size)
{
  for (int n_digit = 6; n_digit <= 17; n_digit++) {
    snprintf(out, size, "%.*g", n_digit, value);
    if (strtod(out, NULL) == value)
      break;
  }
  return out;
}

/* Everything that the bytes of the survey depend on, in words; files carry it. */
static void write_history(simulate_job *job)
{
  const mill_mock_settings *mock = &job->options.mock;
  enum { SIZE = 32 };
  char a[SIZE], b[SIZE], c[SIZE], vsini[80] = "by the default mixture";
  if (mock->has_vsini_range)
    snprintf(vsini, sizeof vsini, "%s to %s km/s", exact(mock->min_vsini, a, SIZE),
             exact(mock->max_vsini, b, SIZE));
  snprintf(job->history[0], HISTORY_SIZE,
           "starmill %s simulate: a mock survey (contents %d), no observation", mill_version(),
           MILL_MOCK_CONTENTS);
  snprintf(job->history[1], HISTORY_SIZE, "seed %llu, %lld stars, %d a file",
           (unsigned long long)mock->seed, (long long)mock->n_star, job->options.per_file);
  if (mock->source == MILL_MOCK_EMULATOR)
    snprintf(job->history[2], HISTORY_SIZE, "source emulator, library %s", job->lib.hash);
  else
    snprintf(job->history[2], HISTORY_SIZE, "source line-model");
  snprintf(job->history[3], HISTORY_SIZE, "S/N %s to %s, velocities %s km/s, v sin i %s",
           exact(mock->min_sn, a, SIZE), exact(mock->max_sn, b, SIZE),
           exact(mock->vel_sigma_km_s, c, SIZE), vsini);
  snprintf(job->history[4], HISTORY_SIZE, "distortion %s, cosmics %s and dead pixels %s per 1000%s",
           exact(mock->distortion, a, SIZE), exact(mock->cosmic_rate, b, SIZE),
           exact(mock->dead_rate, c, SIZE), mock->noiseless ? ", noiseless" : "");
  snprintf(job->history[5], HISTORY_SIZE, "pathological %d per 1000, templates %d, redrock %s",
           mock->n_pathological, mock->n_template, job->options.redrock ? "yes" : "no");
}

/* The history of one file: the survey's and which part of it this is. */
static int file_history(const simulate_job *job, int i_file, char part[HISTORY_SIZE],
                        const char *history[N_HISTORY + 1])
{
  const int64_t first = (int64_t)i_file * job->options.per_file;
  for (int i = 0; i < N_HISTORY; i++)
    history[i] = job->history[i];
  snprintf(part, HISTORY_SIZE, "file %d: stars %lld to %lld", i_file, (long long)first,
           (long long)(first + file_rows(job, i_file) - 1));
  history[N_HISTORY] = part;
  return N_HISTORY + 1;
}

static mill_truth_shape truth_shape(const simulate_job *job, const char *history[N_HISTORY])
{
  for (int i = 0; i < N_HISTORY; i++)
    history[i] = job->history[i];
  return (mill_truth_shape){.n_row = job->options.mock.n_star,
                            .n_label = job->n_label,
                            .label_column = job->label_column,
                            .label_unit = job->label_unit,
                            .n_file = job->n_file,
                            .file = job->file_name_of,
                            .n_history = N_HISTORY,
                            .history = history};
}

/* ---- library, names ------------------------------------------------------------------------ */

static int load_library(void *context)
{
  simulate_job *job = context;
  int err = MILL_OK;
  if (job->mpi.rank == 0)
    MILL_TRY(mill_h5_probe(MILL_PROBE_LIBRARY, job->options.library));
  MILL_TRY(mill_library_read(job->options.library, &job->lib));
done:
  return err;
}

/* Names, labels and wavelengths; no file is touched. */
static int describe(simulate_job *job)
{
  int err = MILL_OK;
  const mill_mock_settings *mock = &job->options.mock;
  job->n_file = (int)((mock->n_star + job->options.per_file - 1) / job->options.per_file);
  MILL_TRY(MILL_ALLOC((size_t)job->n_file * NAME_SIZE, &job->file_name));
  MILL_TRY(mill_alloc_bytes((size_t)job->n_file, sizeof *job->file_name_of,
                            (void **)&job->file_name_of));
  for (int f = 0; f < job->n_file; f++) {
    job->file_name_of[f] = job->file_name + (size_t)f * NAME_SIZE;
    coadd_name(f, job->file_name + (size_t)f * NAME_SIZE, NAME_SIZE);
  }
  const int from_library = mock->source == MILL_MOCK_EMULATOR;
  job->n_label = from_library ? job->lib.n_label : MILL_LINE_N_LABEL;
  job->i_teff = -1;
  for (int i = 0; i < job->n_label; i++) {
    job->label_column[i] =
        from_library ? job->lib.label[i].column : mill_line_label_info_of[i].column;
    job->label_unit[i] = from_library ? job->lib.label[i].unit : mill_line_label_info_of[i].unit;
    if (strcmp(job->label_column[i], "TEFF") == 0)
      job->i_teff = i;
  }
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    const mill_mock_arm *arm = &mill_mock_arm_of[a];
    MILL_TRY(MILL_ALLOC(arm->n_pix, &job->wave_aa[a]));
    for (int i = 0; i < arm->n_pix; i++)
      job->wave_aa[a][i] = arm->wave0_aa + i * arm->step_aa;
    job->arm[a] = (mill_desi_write_arm){arm->name, arm->n_pix, MILL_MOCK_N_DIAG, job->wave_aa[a]};
  }
  write_history(job);
done:
  return err;
}

/* ---- the folder -------------------------------------------------------------------------- */

/* Number of a file of a survey with this name, -1 when it is none; *rest what follows .fits. */
static int file_number(const char *name, void (*make_name)(int, char *, size_t), const char **rest)
{
  char own[NAME_SIZE];
  const size_t n_prefix = strcspn(name, "0123456789");
  char *end = NULL;
  errno = 0;
  const long number = strtol(name + n_prefix, &end, 10);
  if (errno != 0 || end == name + n_prefix || number < 0 || number > MILL_SIMULATE_MAX_FILE)
    return -1;
  make_name((int)number, own, sizeof own);
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

static int entry_kind(const simulate_job *job, const char *name)
{
  static const char *const single[] = {"truth.fits", "catalog.txt"};
  for (int i = 0; i < 2; i++) {
    const size_t n = strlen(single[i]);
    if (strcmp(name, single[i]) == 0)
      return ENTRY_EXPECTED;
    if (strncmp(name, single[i], n) == 0 && strncmp(name + n, ".tmp-", 5) == 0)
      return ENTRY_LEFTOVER;
  }
  const char *rest = "";
  const int coadd = file_number(name, coadd_name, &rest);
  const int number = coadd >= 0 ? coadd : file_number(name, redrock_name, &rest);
  if (number >= 0 && strncmp(rest, ".tmp-", 5) == 0)
    return ENTRY_LEFTOVER;
  if (number < 0 || *rest != '\0')
    return ENTRY_FOREIGN;
  return number < job->n_file && (coadd >= 0 || job->options.redrock) ? ENTRY_EXPECTED
                                                                      : ENTRY_UNEXPECTED;
}

/* Others have files of this name too, which must not be replaced. */
static int check_catalog(const simulate_job *job)
{
  int err = MILL_OK;
  char path[MILL_MAX_PATH], line[sizeof catalog_head] = "";
  survey_path(job, "catalog.txt", path, sizeof path);
  FILE *file = fopen(path, "r");
  if (!file && errno == ENOENT)
    goto done;
  const int ours = file && fgets(line, sizeof line, file) && strcmp(line, catalog_head) == 0;
  if (file)
    fclose(file);
  if (!ours)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is there and not of starmill simulate: choose another folder",
              path);
done:
  return err;
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

/* Before --overwrite removes a survey: others have files of such names too. */
static int refuse_foreign(const simulate_job *job)
{
  int err = MILL_OK;
  char path[MILL_MAX_PATH];
  const struct dirent *entry;
  DIR *dir = opendir(job->options.output);
  while (dir && (entry = readdir(dir)) != NULL) {
    const int kind = entry_kind(job, entry->d_name);
    if ((kind != ENTRY_EXPECTED && kind != ENTRY_UNEXPECTED) ||
        strcmp(entry->d_name, "catalog.txt") == 0) /* see check_catalog */
      continue;
    survey_path(job, entry->d_name, path, sizeof path);
    MILL_TRY(check_own(path));
  }
done:
  if (dir)
    closedir(dir);
  return err;
}

/* Walk the folder; remove_leftovers and remove_survey want the lock. */
static int walk_folder(const simulate_job *job, int remove_leftovers, int remove_survey)
{
  int err = MILL_OK;
  char path[MILL_MAX_PATH];
  const char *folder = job->options.output;
  const struct dirent *entry;
  DIR *dir = opendir(folder);
  if (!dir)
    MILL_FAIL(MILL_ERR_OUTPUT, "--output %s: the folder cannot be read: %s", folder,
              strerror(errno));
  while ((entry = readdir(dir)) != NULL) {
    const int kind = entry_kind(job, entry->d_name);
    if (strlen(entry->d_name) > 100 || kind == ENTRY_FOREIGN)
      continue;
    survey_path(job, entry->d_name, path, sizeof path);
    if (kind == ENTRY_LEFTOVER ? remove_leftovers : remove_survey) {
      if (unlink(path) != 0 && errno != ENOENT)
        MILL_FAIL(MILL_ERR_OUTPUT, "%s cannot be removed: %s", path, strerror(errno));
    } else if (kind == ENTRY_UNEXPECTED) {
      MILL_FAIL(MILL_ERR_OUTPUT,
                "%s is of a survey with other settings: give its settings to continue it, another "
                "folder, or --overwrite, which removes that survey",
                path);
    }
  }
done:
  if (dir)
    closedir(dir);
  return err;
}

static int check_folder(const simulate_job *job, int *is_new)
{
  int err = MILL_OK;
  struct stat status;
  const char *folder = job->options.output;
  *is_new = 0;
  if (strlen(folder) > MAX_FOLDER)
    MILL_FAIL(MILL_ERR_USAGE, "--output: a path of %zu bytes is too long", strlen(folder));
  if (stat(folder, &status) != 0) {
    if (errno != ENOENT)
      MILL_FAIL(MILL_ERR_OUTPUT, "--output %s: the folder cannot be used: %s", folder,
                strerror(errno));
    *is_new = 1;
  } else if (!S_ISDIR(status.st_mode)) {
    MILL_FAIL(MILL_ERR_OUTPUT, "--output %s exists and is no folder: choose another name", folder);
  }
done:
  return err;
}

static int make_folder(const simulate_job *job, int is_new)
{
  int err = MILL_OK;
  const char *folder = job->options.output;
  if (is_new && mkdir(folder, 0777) != 0 && errno != EEXIST)
    MILL_FAIL(MILL_ERR_OUTPUT,
              "--output %s: the folder cannot be made: %s; create its parent first", folder,
              strerror(errno));
  if (access(folder, W_OK | X_OK) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "--output %s: cannot write in the folder: %s", folder,
              strerror(errno));
done:
  return err;
}

/* Size, and state when path is not NULL, of one file as it should be. */
static int compare_file(const simulate_job *job, int i_file, int redrock, const char *path,
                        int64_t *n_byte, int *state)
{
  int err = MILL_OK;
  char part[HISTORY_SIZE];
  const char *history[N_HISTORY + 1];
  const int n_history = file_history(job, i_file, part, history);
  const int64_t n_row = file_rows(job, i_file);
  if (redrock)
    MILL_TRY(mill_redrock_compare(path, n_row, n_history, history, n_byte, state));
  else
    MILL_TRY(mill_desi_compare(path, n_row, MILL_MOCK_N_ARM, job->arm, n_history, history, n_byte,
                               state));
done:
  return err;
}

static int find_sizes(simulate_job *job)
{
  int err = MILL_OK;
  for (int redrock = 0; redrock < 2; redrock++) {
    MILL_TRY(compare_file(job, job->n_file - 1, redrock, NULL, &job->file_bytes[redrock][0], NULL));
    MILL_TRY(compare_file(job, 0, redrock, NULL, &job->file_bytes[redrock][1], NULL));
  }
done:
  return err;
}

/* One file: its size, and whether it is there and of this survey. */
static int look_at(const simulate_job *job, int i_file, int redrock, int64_t *n_byte, int *state)
{
  int err = MILL_OK;
  char name[NAME_SIZE], path[MILL_MAX_PATH];
  (redrock ? redrock_name : coadd_name)(i_file, name, sizeof name);
  survey_path(job, name, path, sizeof path);
  *state = MILL_FILE_ABSENT;
  *n_byte = job->file_bytes[redrock][i_file < job->n_file - 1];
  if (access(path, F_OK) != 0 && errno == ENOENT)
    goto done;
  MILL_TRY(compare_file(job, i_file, redrock, path, n_byte, state));
  if (*state == MILL_FILE_OTHER)
    MILL_FAIL(MILL_ERR_OUTPUT,
              "%s is damaged or of a survey with other settings: give its settings to continue it, "
              "another folder, or --overwrite, which removes that survey",
              path);
done:
  return err;
}

/* What the whole survey takes. */
static int plan_sizes(const simulate_job *job, survey_size *size)
{
  int err = MILL_OK;
  const char *history[N_HISTORY];
  const mill_truth_shape shape = truth_shape(job, history);
  memset(size, 0, sizeof *size);
  MILL_TRY(mill_truth_compare(NULL, &shape, &size->n_byte, NULL));
  for (int redrock = 0; redrock <= job->options.redrock; redrock++)
    size->n_byte += job->file_bytes[redrock][0] + job->file_bytes[redrock][1] * (job->n_file - 1);
done:
  return err;
}

/* Which files are there: the ranks share the looking.  Collective; *complete when the
 * truth table and all files are. */
static int look_at_survey(simulate_job *job, survey_size *size, int *complete)
{
  int err = MILL_OK;
  const char *history[N_HISTORY];
  const mill_truth_shape shape = truth_shape(job, history);
  char path[MILL_MAX_PATH];
  survey_size mine = {0};
  int64_t n_byte = 0;
  int state = 0, truth_state = MILL_FILE_ABSENT, has_catalog = 0;
  int64_t sum[4];
  for (int f = job->mpi.rank; f < job->n_file && err == MILL_OK; f += job->mpi.size) {
    int kept = 1;
    for (int redrock = 0; redrock <= job->options.redrock && err == MILL_OK; redrock++) {
      err = look_at(job, f, redrock, &n_byte, &state);
      mine.n_byte += n_byte;
      mine.n_byte_left += state == MILL_FILE_SAME ? 0 : n_byte;
      mine.n_row_left += state == MILL_FILE_SAME || redrock ? 0 : file_rows(job, f);
      kept &= state == MILL_FILE_SAME;
    }
    mine.n_file_kept += kept;
  }
  if (job->mpi.rank == 0 && err == MILL_OK) {
    survey_path(job, "catalog.txt", path, sizeof path);
    has_catalog = access(path, R_OK) == 0;
    survey_path(job, "truth.fits", path, sizeof path);
    err = mill_truth_compare(path, &shape, &n_byte, &truth_state);
    mine.n_byte += n_byte;
    mine.n_byte_left += truth_state == MILL_FILE_SAME ? 0 : n_byte;
    if (err == MILL_OK && truth_state == MILL_FILE_OTHER)
      err = mill_error_set(MILL_ERR_OUTPUT, __FILE__, __LINE__,
                           "%s is damaged or of a survey with other settings: give its settings to "
                           "continue it, another folder, or --overwrite, which removes that survey",
                           path);
  }
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  job->n_row_mine = mine.n_row_left;
  const int64_t part[4] = {mine.n_byte, mine.n_byte_left, mine.n_file_kept, mine.n_row_left};
  MILL_MPI(MPI_Allreduce(part, sum, 4, MPI_INT64_T, MPI_SUM, job->mpi.comm));
  *size = (survey_size){sum[0], sum[1], sum[2], sum[3]};
  *complete = truth_state == MILL_FILE_SAME && has_catalog && size->n_file_kept == job->n_file;
  MILL_MPI(MPI_Bcast(complete, 1, MPI_INT, 0, job->mpi.comm));
done:
  return err;
}

static int free_space(const simulate_job *job, double *n_byte)
{
  int err = MILL_OK;
  struct statvfs space;
  if (statvfs(job->options.output, &space) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "--output %s: the free space cannot be found: %s",
              job->options.output, strerror(errno));
  *n_byte = (double)space.f_bavail * (double)space.f_frsize;
done:
  return err;
}

static int check_space(const simulate_job *job, const survey_size *size)
{
  int err = MILL_OK;
  double n_free = 0;
  MILL_TRY(free_space(job, &n_free));
  if (n_free < (double)size->n_byte_left)
    MILL_FAIL(MILL_ERR_OUTPUT,
              "--output %s: the survey needs %.3f GB more and %.3f GB are free: make room, choose "
              "another folder, or give fewer --stars",
              job->options.output, (double)size->n_byte_left / 1e9, n_free / 1e9);
done:
  return err;
}

/* Rank 0: take the lock, clear away what must go. */
static int claim_folder(simulate_job *job, int is_new)
{
  int err = MILL_OK;
  char path[MILL_MAX_PATH];
  MILL_TRY(make_folder(job, is_new));
  survey_path(job, "truth.fits", path, sizeof path);
  MILL_TRY(mill_lock_take(path, &job->lock));
  if (job->options.overwrite)
    MILL_TRY(refuse_foreign(job));
  /* the truth first: where it lies, the survey is complete */
  if (job->options.overwrite && unlink(path) != 0 && errno != ENOENT)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s cannot be removed: %s", path, strerror(errno));
  MILL_TRY(walk_folder(job, 1, job->options.overwrite));
done:
  return err;
}

/* Rank 0: something is to be written, so the survey is not complete. */
static int drop_truth(const simulate_job *job)
{
  int err = MILL_OK;
  char path[MILL_MAX_PATH];
  survey_path(job, "truth.fits", path, sizeof path);
  if (unlink(path) != 0 && errno != ENOENT)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s cannot be removed: %s", path, strerror(errno));
done:
  return err;
}

/* From the options to a folder that may be written.  Collective. */
static int prepare_folder(simulate_job *job, survey_size *size, int *complete)
{
  int err = MILL_OK;
  int is_new = 0;
  *complete = 0;
  if (job->mpi.rank == 0) {
    err = check_folder(job, &is_new);
    if (err == MILL_OK)
      err = check_catalog(job);
    if (err == MILL_OK && !is_new && !job->options.overwrite)
      err = walk_folder(job, 0, 0);
  }
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  MILL_MPI(MPI_Bcast(&is_new, 1, MPI_INT, 0, job->mpi.comm));
  /* a complete survey needs no lock, and may lie where nobody can write */
  if (!is_new && !job->options.overwrite)
    MILL_TRY(look_at_survey(job, size, complete));
  if (*complete)
    goto done;
  if (job->mpi.rank == 0)
    err = claim_folder(job, is_new);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  /* again, for another job may have written until the lock was ours */
  MILL_TRY(look_at_survey(job, size, complete));
  if (*complete)
    goto done;
  if (job->mpi.rank == 0) {
    err = check_space(job, size);
    if (err == MILL_OK)
      err = drop_truth(job);
  }
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
done:
  return err;
}

/* What the library or the settings do not allow is told before a survey is removed or a
 * folder made.  Without the templates, which take time. */
static int check_survey(const simulate_job *job)
{
  mill_mock_settings mock = job->options.mock;
  mill_mock_survey *survey = NULL;
  mock.n_template = 0;
  const int err = mill_mock_survey_create(
      &mock, mock.source == MILL_MOCK_EMULATOR ? &job->lib : NULL, 1, 0, 1, &survey);
  mill_mock_survey_destroy(survey);
  return err;
}

static int set_up(simulate_job *job)
{
  int err = mill_stop_signal_catch();
  if (err == MILL_OK)
    err = mill_log_open(job->mpi.rank, job->mpi.size, MILL_LOG_INFO, NULL);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  if (job->options.mock.source == MILL_MOCK_EMULATOR)
    MILL_TRY(mill_mpi_rank0_first(&job->mpi, load_library, job));
  err = describe(job);
  if (err == MILL_OK)
    err = find_sizes(job);
  if (err == MILL_OK && job->mpi.rank == 0)
    err = check_survey(job);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  job->n_thread = job->options.n_thread;
  if (job->n_thread == 0)
    MILL_TRY(mill_mpi_share_of_cores(&job->mpi, &job->n_thread));
done:
  return err;
}

/* ---- making stars ------------------------------------------------------------------------ */

static void free_workers(simulate_job *job)
{
  for (int t = 0; job->worker && t < job->n_thread; t++) {
    worker *w = &job->worker[t];
    mill_mock_work_destroy(w->work);
    for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
      mill_free(w->flux[a]);
      mill_free(w->ivar[a]);
      mill_free(w->mask[a]);
    }
    mill_free(w->scratch);
  }
  mill_free(job->worker);
  job->worker = NULL;
}

static int make_workers(simulate_job *job)
{
  int err = MILL_OK;
  int max_pix = 0;
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    max_pix = mill_mock_arm_of[a].n_pix > max_pix ? mill_mock_arm_of[a].n_pix : max_pix;
  MILL_TRY(MILL_ALLOC(job->n_thread, &job->worker));
  for (int t = 0; t < job->n_thread; t++) {
    worker *w = &job->worker[t];
    MILL_TRY(mill_mock_work_create(job->survey, &w->work));
    for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
      const size_t n = (size_t)BLOCK_ROWS * (size_t)mill_mock_arm_of[a].n_pix;
      MILL_TRY(MILL_ALLOC(n, &w->flux[a]));
      MILL_TRY(MILL_ALLOC(n, &w->ivar[a]));
      MILL_TRY(MILL_ALLOC(n, &w->mask[a]));
    }
    MILL_TRY(MILL_ALLOC(2 * max_pix, &w->scratch));
  }
done:
  return err;
}

/* The survey with its templates, each made by one rank and sent to the others. Collective. */
static int make_survey(simulate_job *job)
{
  int err = MILL_OK;
  const mill_mock_settings *mock = &job->options.mock;
  int64_t n_value = 0;
  err = mill_mock_survey_create(mock, mock->source == MILL_MOCK_EMULATOR ? &job->lib : NULL,
                                job->n_thread, job->mpi.rank, job->mpi.size, &job->survey);
  if (err == MILL_OK)
    err = make_workers(job);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  float *template = mill_mock_survey_templates(job->survey, &n_value);
  for (int i = 0; template && i < mock->n_template && job->mpi.size > 1; i++)
    MILL_MPI(MPI_Bcast(template + i * n_value, (int)n_value, MPI_FLOAT, i % job->mpi.size,
                       job->mpi.comm));
done:
  return err;
}

/* Make a block of rows of a file and write its pixels. */
static int make_block(simulate_job *job, worker *w, int i_file, int64_t first, int n,
                      mill_desi_writer *writer, mill_fibermap_row *fibermap)
{
  int err = MILL_OK;
  const float *resolution[MILL_MOCK_N_ARM][BLOCK_ROWS];
  for (int i = 0; i < n; i++) {
    mill_mock_star star;
    mill_mock_row row;
    mill_mock_draw(job->survey, (int64_t)i_file * job->options.per_file + first + i, &star);
    for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
      const size_t at = (size_t)i * (size_t)mill_mock_arm_of[a].n_pix;
      row.flux[a] = w->flux[a] + at;
      row.ivar[a] = w->ivar[a] + at;
      row.mask[a] = w->mask[a] + at;
      resolution[a][i] = mill_mock_resolution(job->survey, star.lsf_group, a);
    }
    MILL_TRY(mill_mock_observe(job->survey, &star, w->work, &row));
    mill_simulate_fibermap_row(&star, &row, w->scratch, &fibermap[first + i]);
  }
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    MILL_TRY(mill_desi_writer_rows(writer, a, first, n, w->flux[a], w->ivar[a], w->mask[a],
                                   resolution[a]));
done:
  return err;
}

/* Between blocks: must this rank stop?  Only the first thread asks the others. */
static int must_stop(simulate_job *job, int i_thread)
{
  int stop;
  if (i_thread == 0 && (mill_stop_signal_seen() || mill_mpi_stop_asked(&job->mpi))) {
#pragma omp atomic write
    job->stopping = 1;
  }
#pragma omp atomic read
  stop = job->stopping;
  return stop;
}

static void note_failure(simulate_job *job, int err)
{
#pragma omp critical(mill_simulate_failure)
  if (job->failed == MILL_OK) {
    job->failed = err;
    snprintf(job->message, sizeof job->message, "%s", mill_error_message());
  }
#pragma omp atomic write
  job->stopping = 1;
}

static int write_coadd(simulate_job *job, int i_file)
{
  int err = MILL_OK;
  char path[MILL_MAX_PATH], part[HISTORY_SIZE];
  const char *history[N_HISTORY + 1];
  const int n_history = file_history(job, i_file, part, history);
  const int64_t n_row = file_rows(job, i_file);
  const int64_t n_block = (n_row + BLOCK_ROWS - 1) / BLOCK_ROWS;
  mill_desi_writer *writer = NULL;
  mill_fibermap_row *fibermap = NULL;
  survey_path(job, job->file_name_of[i_file], path, sizeof path);
  MILL_TRY(MILL_ALLOC(n_row, &fibermap));
  MILL_TRY(mill_desi_writer_open(path, 0, n_row, MILL_MOCK_N_ARM, job->arm, n_history, history,
                                 &writer));
#pragma omp parallel for schedule(dynamic, 1) num_threads(job->n_thread)
  for (int64_t b = 0; b < n_block; b++) {
    const int i_thread = omp_get_thread_num();
    if (must_stop(job, i_thread))
      continue;
    const int64_t first = b * BLOCK_ROWS;
    const int n = n_row - first < BLOCK_ROWS ? (int)(n_row - first) : BLOCK_ROWS;
    const int code = make_block(job, &job->worker[i_thread], i_file, first, n, writer, fibermap);
    if (code != MILL_OK) {
      note_failure(job, code);
      continue;
    }
    int64_t n_made;
#pragma omp atomic capture
    n_made = job->n_row_made += n;
    if (i_thread == 0)
      mill_progress_update(&job->progress, n_made, 0);
  }
  if (job->failed != MILL_OK)
    MILL_FAIL(job->failed, "%s", job->message);
  if (job->stopping)
    MILL_FAIL(MILL_ERR_STOPPED, "stopped");
  MILL_TRY(mill_desi_writer_fibermap(writer, fibermap));
  err = mill_desi_writer_close(writer);
  writer = NULL;
done:
  mill_desi_writer_abandon(writer);
  mill_free(fibermap);
  return err;
}

static int write_redrock(const simulate_job *job, int i_file)
{
  int err = MILL_OK;
  char name[NAME_SIZE], path[MILL_MAX_PATH], part[HISTORY_SIZE];
  const char *history[N_HISTORY + 1];
  const int n_history = file_history(job, i_file, part, history);
  const int64_t n_row = file_rows(job, i_file);
  mill_redrock_row *row = NULL;
  redrock_name(i_file, name, sizeof name);
  survey_path(job, name, path, sizeof path);
  MILL_TRY(MILL_ALLOC(n_row, &row));
  for (int64_t i = 0; i < n_row; i++) {
    mill_mock_star star;
    mill_mock_draw(job->survey, (int64_t)i_file * job->options.per_file + i, &star);
    mill_simulate_redrock_row(&star, job->i_teff >= 0 ? star.label[job->i_teff] : NAN,
                              job->options.mock.seed, &row[i]);
  }
  MILL_TRY(mill_redrock_write(path, 0, n_row, row, n_history, history));
done:
  mill_free(row);
  return err;
}

/* This rank's files.  Not collective: a failure here reaches the other ranks as a request
 * to stop. */
static int write_share(simulate_job *job, int64_t *n_file_done)
{
  int err = MILL_OK;
  int64_t n_byte = 0;
  int state = 0;
  *n_file_done = 0;
  for (int f = job->mpi.rank; f < job->n_file; f += job->mpi.size) {
    MILL_TRY(look_at(job, f, 0, &n_byte, &state));
    if (state == MILL_FILE_ABSENT) {
      if (must_stop(job, 0))
        MILL_FAIL(MILL_ERR_STOPPED, "stopped");
      MILL_TRY(write_coadd(job, f));
    }
    if (job->options.redrock) {
      MILL_TRY(look_at(job, f, 1, &n_byte, &state));
      if (state == MILL_FILE_ABSENT)
        MILL_TRY(write_redrock(job, f));
    }
    ++*n_file_done;
  }
done:
  if (err != MILL_OK) {
    /* the message of the failure must survive the call */
    char message[1024];
    snprintf(message, sizeof message, "%s", mill_error_message());
    if (mill_mpi_stop_others(&job->mpi) == MILL_OK)
      mill_error_set(err, __FILE__, __LINE__, "%s", message);
  }
  return err;
}

/* ---- the truth --------------------------------------------------------------------------- */

static int write_catalog(const simulate_job *job)
{
  int err = MILL_OK;
  char path[MILL_MAX_PATH], temporary[MILL_MAX_PATH + 80], tag[64];
  mill_lock_job(tag, sizeof tag);
  survey_path(job, "catalog.txt", path, sizeof path);
  snprintf(temporary, sizeof temporary, "%s.tmp-%s", path, tag);
  FILE *file = fopen(temporary, "w");
  if (!file)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s cannot be created: %s", path, strerror(errno));
  int ok = fputs(catalog_head, file) >= 0;
  for (int f = 0; f < job->n_file; f++)
    ok = ok && fprintf(file, "%s\n", job->file_name_of[f]) > 0;
  ok = (fclose(file) == 0) && ok;
  if (!ok || rename(temporary, path) != 0) {
    const int reason = errno;
    unlink(temporary);
    MILL_FAIL(MILL_ERR_OUTPUT, "%s cannot be written: %s: make room or choose another output", path,
              strerror(reason));
  }
done:
  return err;
}

/* Rank 0, when all files are there. */
static int write_truth(const simulate_job *job)
{
  int err = MILL_OK;
  char path[MILL_MAX_PATH];
  const char *history[N_HISTORY];
  const mill_truth_shape shape = truth_shape(job, history);
  mill_truth_writer *writer = NULL;
  mill_truth_row *row = NULL;
  survey_path(job, "truth.fits", path, sizeof path);
  MILL_TRY(MILL_ALLOC(TRUTH_ROWS, &row));
  MILL_TRY(mill_truth_writer_open(path, 0, &shape, &writer));
  for (int64_t first = 0; first < shape.n_row; first += TRUTH_ROWS) {
    const int n = shape.n_row - first < TRUTH_ROWS ? (int)(shape.n_row - first) : TRUTH_ROWS;
    if (mill_stop_signal_seen())
      MILL_FAIL(MILL_ERR_STOPPED, "stopped while the truth table was written; give the same "
                                  "command again to continue");
    for (int i = 0; i < n; i++) {
      mill_mock_star star;
      mill_mock_draw(job->survey, first + i, &star);
      mill_simulate_truth_row(&star, job->options.per_file, &row[i]);
    }
    MILL_TRY(mill_truth_writer_rows(writer, first, n, row));
  }
  err = mill_truth_writer_close(writer);
  writer = NULL;
done:
  mill_truth_writer_abandon(writer);
  mill_free(row);
  return err;
}

/* ---- the job ----------------------------------------------------------------------------- */

static void print_plan(const simulate_job *job, const survey_size *size)
{
  double n_free = 0;
  int is_new = 0;
  printf("stars        %lld\n", (long long)job->options.mock.n_star);
  printf("files        %d, %s%s, of %d rows", job->n_file, job->file_name_of[0],
         job->n_file > 1 ? " and so on" : "", (int)file_rows(job, 0));
  if (job->n_file > 1 && file_rows(job, job->n_file - 1) != file_rows(job, 0))
    printf(", the last of %d", (int)file_rows(job, job->n_file - 1));
  printf("%s\n", job->options.redrock ? ", each with a redrock file" : "");
  printf("bytes        %lld (%.3f GB)\n", (long long)size->n_byte, (double)size->n_byte / 1e9);
  if (job->options.output && check_folder(job, &is_new) == MILL_OK && !is_new &&
      free_space(job, &n_free) == MILL_OK)
    printf("free         %.3f GB in %s\n", n_free / 1e9, job->options.output);
  printf("nothing was written: leave out --plan for that\n");
  fflush(stdout);
}

static void print_summary(const simulate_job *job, const survey_size *size, int complete,
                          double wall_s)
{
  char path[MILL_MAX_PATH];
  const mill_mock_settings *mock = &job->options.mock;
  if (complete)
    printf("%s is complete already; nothing was done\n", job->options.output);
  printf("stars        %lld\n", (long long)mock->n_star);
  printf("files        %d", job->n_file);
  if (!complete && size->n_file_kept > 0)
    printf(", of them %lld were there already", (long long)size->n_file_kept);
  printf("\nbytes        %lld (%.3f GB)\n", (long long)size->n_byte, (double)size->n_byte / 1e9);
  if (!complete)
    printf("time         %.1f s, %.1f stars/s (%d %s, %d %s each)\n", wall_s,
           wall_s > 0 ? (double)size->n_row_left / wall_s : 0.0, job->mpi.size,
           job->mpi.size == 1 ? "rank" : "ranks", job->n_thread,
           job->n_thread == 1 ? "thread" : "threads");
  survey_path(job, "truth.fits", path, sizeof path);
  printf("truth        %s\n", path);
  survey_path(job, "catalog.txt", path, sizeof path);
  printf("to fit it    starmill fit --library %s --catalog %s --output RESULT.h5\n",
         mock->source == MILL_MOCK_EMULATOR ? job->options.library : "LIB.h5", path);
  fflush(stdout);
}

/* Make what is not there. Collective. */
static int make_files(simulate_job *job)
{
  int err = MILL_OK;
  int64_t n_file_done = 0, n_done = 0;
  if (job->mpi.rank == 0 && job->options.mock.n_template > 0 && !job->options.quiet)
    mill_log_info("%d templates are prepared", job->options.mock.n_template);
  MILL_TRY(make_survey(job));
  /* rank 0 shows its own part, which stands for all */
  mill_progress_start(&job->progress, job->n_row_mine, 0, job->options.quiet || job->mpi.rank != 0);
  err = write_share(job, &n_file_done);
  mill_progress_end(&job->progress);
  if (err != MILL_ERR_MPI) {
    /* also after a failure: MPI must not end with a message under way */
    char message[1024];
    snprintf(message, sizeof message, "%s", mill_error_message());
    const int settled = mill_mpi_stop_settle(&job->mpi);
    if (settled != MILL_OK)
      err = settled;
    else if (err != MILL_OK)
      mill_error_set(err, __FILE__, __LINE__, "%s", message);
  }
  if (err == MILL_ERR_MPI)
    goto done;
  MILL_MPI(MPI_Allreduce(&n_file_done, &n_done, 1, MPI_INT64_T, MPI_SUM, job->mpi.comm));
  if (err == MILL_ERR_STOPPED)
    mill_error_set(
        err, __FILE__, __LINE__,
        "stopped with %lld of %d files complete; give the same command again to continue",
        (long long)n_done, job->n_file);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  if (job->mpi.rank == 0) {
    err = write_catalog(job);
    if (err == MILL_OK)
      err = write_truth(job);
  }
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
done:
  return err;
}

static int run(simulate_job *job)
{
  int err = MILL_OK;
  int complete = 0;
  survey_size size = {0};
  const double start_s = mill_wall_s();
  MILL_TRY(set_up(job));
  if (job->options.plan) {
    MILL_TRY(plan_sizes(job, &size));
    if (job->mpi.rank == 0)
      print_plan(job, &size);
    goto done;
  }
  MILL_TRY(prepare_folder(job, &size, &complete));
  if (!complete)
    MILL_TRY(make_files(job));
  if (job->mpi.rank == 0 && !job->options.quiet)
    print_summary(job, &size, complete, mill_wall_s() - start_s);
done:
  return err;
}

static int start(simulate_job *job, int argc, char **argv)
{
  int err = MILL_OK;
  MILL_TRY(mill_simulate_options_parse(argc, argv, &job->options));
  if (!job->options.help)
    MILL_TRY(run(job));
  else if (job->mpi.rank == 0)
    mill_simulate_options_print_help(stdout);
done:
  return err;
}

int mill_job_simulate(int argc, char **argv)
{
  int exit_status = 0;
  simulate_job job;
  memset(&job, 0, sizeof job);
  int err = mill_mpi_start(&job.mpi);
  if (err == MILL_OK)
    err = start(&job, argc, argv);
  if (err != MILL_OK) {
    exit_status = mill_error_exit_status(err);
    /* all ranks have the same message, except when MPI itself fails */
    if (job.mpi.rank == 0 || err == MILL_ERR_MPI)
      fprintf(stderr, "starmill simulate: %s\n", mill_error_message());
  }
  mill_log_close();
  mill_lock_release(&job.lock);
  free_workers(&job);
  mill_mock_survey_destroy(job.survey);
  mill_library_clear(&job.lib);
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    mill_free(job.wave_aa[a]);
  mill_free(job.file_name);
  mill_free(job.file_name_of);
  if (err == MILL_ERR_MPI && job.mpi.size > 1)
    MPI_Abort(MPI_COMM_WORLD, exit_status);
  mill_mpi_end(&job.mpi);
  return exit_status;
}
