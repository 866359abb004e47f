#include "jobs/simulate/simulate_plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "src/system/version.h"

/* ---- names and history ------------------------------------------------------------------- */

const mill_library *mill_simulate_library(const mill_simulate_plan *plan)
{
  return plan->options.mock.source == MILL_MOCK_EMULATOR ? &plan->lib : NULL;
}

void mill_simulate_path(const mill_simulate_plan *plan, const char *name, char out[MILL_MAX_PATH])
{
  const char *folder = plan->options.output;
  const size_t n = strlen(folder);
  snprintf(out, MILL_MAX_PATH, "%s%s%s", folder, n > 0 && folder[n - 1] == '/' ? "" : "/", name);
}

void mill_simulate_name(int i_file, int redrock, char out[MILL_SIMULATE_NAME])
{
  snprintf(out, MILL_SIMULATE_NAME, "%s-mock-%05d.fits", redrock ? "redrock" : "coadd", i_file);
}

int64_t mill_simulate_rows(const mill_simulate_plan *plan, int i_file)
{
  const int64_t n_left = plan->options.mock.n_star - (int64_t)i_file * plan->options.per_file;
  return n_left < plan->options.per_file ? n_left : plan->options.per_file;
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
static void write_history(mill_simulate_plan *plan)
{
  const mill_mock_settings *mock = &plan->options.mock;
  enum { SIZE = 32, LINE = MILL_SIMULATE_HISTORY };
  char a[SIZE], b[SIZE], c[SIZE], vsini[80] = "by the default mixture";
  if (mock->has_vsini_range)
    snprintf(vsini, sizeof vsini, "%s to %s km/s", exact(mock->min_vsini, a, SIZE),
             exact(mock->max_vsini, b, SIZE));
  snprintf(plan->history[0], LINE,
           "starmill %s simulate: a mock survey (contents %d), no observation", mill_version(),
           MILL_MOCK_CONTENTS);
  snprintf(plan->history[1], LINE, "seed %llu, %lld stars, %d a file",
           (unsigned long long)mock->seed, (long long)mock->n_star, plan->options.per_file);
  if (mock->source == MILL_MOCK_EMULATOR)
    snprintf(plan->history[2], LINE, "source emulator, library %s", plan->lib.hash);
  else
    snprintf(plan->history[2], LINE, "source line-model");
  snprintf(plan->history[3], LINE, "S/N %s to %s, velocities %s km/s, v sin i %s",
           exact(mock->min_sn, a, SIZE), exact(mock->max_sn, b, SIZE),
           exact(mock->vel_sigma_km_s, c, SIZE), vsini);
  snprintf(plan->history[4], LINE, "distortion %s, cosmics %s and dead pixels %s per 1000%s",
           exact(mock->distortion, a, SIZE), exact(mock->cosmic_rate, b, SIZE),
           exact(mock->dead_rate, c, SIZE), mock->noiseless ? ", noiseless" : "");
  snprintf(plan->history[5], LINE, "pathological %d per 1000, templates %d, redrock %s",
           mock->n_pathological, mock->n_template, plan->options.redrock ? "yes" : "no");
}

void mill_simulate_history_of(const mill_simulate_plan *plan, int i_file,
                              mill_simulate_history *history)
{
  const int64_t first = (int64_t)i_file * plan->options.per_file;
  for (int i = 0; i < MILL_SIMULATE_N_HISTORY; i++)
    history->line[i] = plan->history[i];
  snprintf(history->part, sizeof history->part, "file %d: stars %lld to %lld", i_file,
           (long long)first, (long long)(first + mill_simulate_rows(plan, i_file) - 1));
  history->line[MILL_SIMULATE_N_HISTORY] = history->part;
}

mill_truth_shape mill_simulate_truth_shape(const mill_simulate_plan *plan,
                                           mill_simulate_history *history)
{
  mill_simulate_history_of(plan, 0, history);
  return (mill_truth_shape){.n_row = plan->options.mock.n_star,
                            .n_label = plan->n_label,
                            .label_column = plan->label_column,
                            .label_unit = plan->label_unit,
                            .n_file = plan->n_file,
                            .file = plan->coadd,
                            .n_history = MILL_SIMULATE_N_HISTORY, /* of no single file */
                            .history = history->line};
}

/* ---- sizes ------------------------------------------------------------------------------- */

/* Size, and state when path is not NULL, of one file as it should be. */
static int compare(const mill_simulate_plan *plan, int i_file, int redrock, const char *path,
                   int64_t *n_byte, int *state)
{
  mill_simulate_history h;
  const int n_history = MILL_SIMULATE_N_HISTORY + 1;
  const int64_t n_row = mill_simulate_rows(plan, i_file);
  mill_simulate_history_of(plan, i_file, &h);
  return redrock ? mill_redrock_compare(path, n_row, n_history, h.line, n_byte, state)
                 : mill_desi_compare(path, n_row, MILL_MOCK_N_ARM, plan->arm, n_history, h.line,
                                     n_byte, state);
}

int mill_simulate_plan_make(mill_simulate_plan *plan)
{
  const mill_mock_settings *mock = &plan->options.mock;
  const mill_library *lib = mill_simulate_library(plan);
  plan->n_file = (int)((mock->n_star + plan->options.per_file - 1) / plan->options.per_file);
  MILL_CHECK(MILL_ALLOC((size_t)plan->n_file * MILL_SIMULATE_NAME, &plan->name));
  MILL_CHECK(mill_alloc_bytes((size_t)plan->n_file, sizeof *plan->coadd, (void **)&plan->coadd));
  for (int f = 0; f < plan->n_file; f++) {
    char *name = plan->name + (size_t)f * MILL_SIMULATE_NAME;
    mill_simulate_name(f, 0, name);
    plan->coadd[f] = name;
  }
  plan->n_label = lib ? lib->n_label : MILL_LINE_N_LABEL;
  plan->i_teff = -1;
  for (int i = 0; i < plan->n_label; i++) {
    plan->label_column[i] = lib ? lib->label[i].column : mill_line_label_info_of[i].column;
    plan->label_unit[i] = lib ? lib->label[i].unit : mill_line_label_info_of[i].unit;
    if (strcmp(plan->label_column[i], "TEFF") == 0)
      plan->i_teff = i;
  }
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    const mill_mock_arm *arm = &mill_mock_arm_of[a];
    MILL_CHECK(MILL_ALLOC(arm->n_pix, &plan->wave_aa[a]));
    for (int i = 0; i < arm->n_pix; i++)
      plan->wave_aa[a][i] = arm->wave0_aa + i * arm->step_aa;
    plan->arm[a] = (mill_desi_write_arm){arm->name, arm->n_pix, MILL_MOCK_N_DIAG, plan->wave_aa[a]};
  }
  write_history(plan);
  for (int redrock = 0; redrock < 2; redrock++)
    for (int other = 0; other < 2; other++)
      MILL_CHECK(compare(plan, other ? 0 : plan->n_file - 1, redrock, NULL,
                         &plan->file_bytes[redrock][other], NULL));
  return MILL_OK;
}

void mill_simulate_plan_clear(mill_simulate_plan *plan)
{
  mill_library_clear(&plan->lib);
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    mill_free(plan->wave_aa[a]);
  mill_free(plan->name);
  mill_free(plan->coadd);
}

int mill_simulate_plan_size(const mill_simulate_plan *plan, mill_simulate_size *size)
{
  mill_simulate_history history;
  const mill_truth_shape shape = mill_simulate_truth_shape(plan, &history);
  memset(size, 0, sizeof *size);
  MILL_CHECK(mill_truth_compare(NULL, &shape, &size->n_byte, NULL));
  for (int redrock = 0; redrock <= plan->options.redrock; redrock++)
    size->n_byte +=
        plan->file_bytes[redrock][0] + plan->file_bytes[redrock][1] * (plan->n_file - 1);
  return MILL_OK;
}

/* ---- what is there ----------------------------------------------------------------------- */

static int refuse_other(const char *path, int state)
{
  return state != MILL_FILE_OTHER
             ? MILL_OK
             : MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged or of " MILL_SIMULATE_OTHER, path);
}

int mill_simulate_look_at(const mill_simulate_plan *plan, int i_file, int redrock, int64_t *n_byte,
                          int *state)
{
  char name[MILL_SIMULATE_NAME], path[MILL_MAX_PATH];
  mill_simulate_name(i_file, redrock, name);
  mill_simulate_path(plan, name, path);
  *state = MILL_FILE_ABSENT;
  *n_byte = plan->file_bytes[redrock][i_file < plan->n_file - 1];
  if (access(path, F_OK) != 0 && errno == ENOENT)
    return MILL_OK;
  MILL_CHECK(compare(plan, i_file, redrock, path, n_byte, state));
  return refuse_other(path, *state);
}

/* Rank 0: the truth table and the catalog. */
static int look_at_truth(const mill_simulate_plan *plan, mill_simulate_size *mine, int *is_there)
{
  int state = 0;
  char path[MILL_MAX_PATH];
  int64_t n_byte = 0;
  mill_simulate_history history;
  const mill_truth_shape shape = mill_simulate_truth_shape(plan, &history);
  mill_simulate_path(plan, MILL_SIMULATE_CATALOG, path);
  *is_there = access(path, R_OK) == 0;
  mill_simulate_path(plan, MILL_SIMULATE_TRUTH, path);
  MILL_CHECK(mill_truth_compare(path, &shape, &n_byte, &state));
  mine->n_byte += n_byte;
  mine->n_byte_left += state == MILL_FILE_SAME ? 0 : n_byte;
  MILL_CHECK(refuse_other(path, state));
  *is_there = *is_there && state == MILL_FILE_SAME;
  return MILL_OK;
}

/* Files of this rank. */
static int look_at_mine(const mill_mpi *mpi, const mill_simulate_plan *plan,
                        mill_simulate_size *mine)
{
  int state = 0;
  int64_t n_byte = 0;
  for (int f = mpi->rank; f < plan->n_file; f += mpi->size) {
    int kept = 1;
    for (int redrock = 0; redrock <= plan->options.redrock; redrock++) {
      MILL_CHECK(mill_simulate_look_at(plan, f, redrock, &n_byte, &state));
      mine->n_byte += n_byte;
      mine->n_byte_left += state == MILL_FILE_SAME ? 0 : n_byte;
      mine->n_row_left += state == MILL_FILE_SAME || redrock ? 0 : mill_simulate_rows(plan, f);
      kept &= state == MILL_FILE_SAME;
    }
    mine->n_file_kept += kept;
  }
  return MILL_OK;
}

int mill_simulate_look_at_all(const mill_mpi *mpi, const mill_simulate_plan *plan,
                              mill_simulate_size *size, int *complete)
{
  mill_simulate_size mine = {0};
  int has_truth = 0;
  int64_t sum[4];
  int err = look_at_mine(mpi, plan, &mine);
  if (mpi->rank == 0 && err == MILL_OK)
    err = look_at_truth(plan, &mine, &has_truth);
  MILL_TRY(mill_mpi_agree(mpi, err));
  const int64_t part[4] = {mine.n_byte, mine.n_byte_left, mine.n_file_kept, mine.n_row_left};
  MILL_MPI(MPI_Allreduce(part, sum, 4, MPI_INT64_T, MPI_SUM, mpi->comm));
  *size = (mill_simulate_size){sum[0], sum[1], sum[2], sum[3], mine.n_row_left};
  *complete = has_truth && size->n_file_kept == plan->n_file;
  MILL_MPI(MPI_Bcast(complete, 1, MPI_INT, 0, mpi->comm));
done:
  return err;
}
