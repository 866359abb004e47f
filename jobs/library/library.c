/* SPDX-License-Identifier: BSD-3-Clause */
#include <ctype.h>
#include <unistd.h>

#include "io/library/library_file.h"
#include "io/library/train_file.h"
#include "io/result/columns.h"
#include "jobs/jobs.h"
#include "jobs/library/train_networks.h"
#include "jobs/library/train_options.h"
#include "jobs/options/job_steps.h"
#include "kernels/gpu.h"
#include "src/config/text.h"
#include "src/run/backend_choice.h"
#include "src/run/stop_watch.h"
#include "src/system/blas_threads.h"
#include "src/system/file_roles.h"
#include "src/system/random.h"
#include "src/system/stop_signal.h"
#include "src/system/thread.h"

enum {
  MIN_MODEL = 12,
  /* least models left out for a model error: LEAST_SPECTRA in templates/residuals.py */
  MIN_LEFT_OUT = 8,
  SPLIT_STREAM = 0x73706c74 /* "splt" */
};

/* ---- job ---- */

enum { MAX_PATH = 4096 };

typedef struct job {
  const mill_mpi *mpi;
  mill_train_options o;
  mill_lock lock; /* of the checkpoint, on rank 0 */
  char checkpoint[MAX_PATH], stop_file[MAX_PATH], table[MAX_PATH], trained[MAX_PATH];
  mill_grid_file *grid;
  mill_grid_info info;
  mill_train_split split;
  double *mapped; /* [split.n][n_label] */
  mill_library *lib;
} job;

static int name_file(const char *given, const char *output, const char *end, char out[MAX_PATH])
{
  if (snprintf(out, MAX_PATH, "%s%s", given ? given : output, given ? "" : end) >= MAX_PATH)
    return MILL_ERROR(MILL_ERR_USAGE, "the path %.80s... is too long", given ? given : output);
  return MILL_OK;
}

/* Rank 0: check that all file names differ and the outputs can be written; lock the checkpoint. */
static int claim_files(job *j)
{
  mill_file_roles roles = {0};
  const mill_train_options *o = &j->o;
  MILL_CHECK(mill_file_roles_write(&roles, "--output", o->output));
  MILL_CHECK(mill_file_roles_write(&roles, o->checkpoint ? "--checkpoint" : "the checkpoint",
                                   j->checkpoint));
  MILL_CHECK(mill_file_roles_write(&roles, "the table of losses", j->table));
  MILL_CHECK(mill_file_roles_write(&roles, "the trained networks", j->trained));
  MILL_CHECK(mill_file_roles_read(&roles, "the grid file", j->o.input));
  MILL_CHECK(
      mill_file_roles_read(&roles, o->stop_file ? "--stop-file" : "the stop file", j->stop_file));
  MILL_CHECK(mill_library_writable(o->output, o->overwrite));
  /* a training that has a checkpoint continues its own table */
  if (!o->overwrite && access(j->table, F_OK) == 0 && access(j->checkpoint, F_OK) != 0)
    return MILL_ERROR(
        MILL_ERR_OUTPUT,
        "%s: holds the loss table of another training; give another --output or --overwrite",
        j->table);
  MILL_CHECK(mill_stop_file_absent(j->stop_file));
  return mill_lock_take(j->checkpoint, &j->lock);
}

/* Mark n_left_out of n models at random (Knuth, TAOCP 3.4.2, algorithm S). */
static void choose_left_out(uint64_t seed, int n, int n_left_out, unsigned char *left_out)
{
  mill_random r;
  mill_random_begin(&r, seed, 0, SPLIT_STREAM);
  for (int n_still = n; n_still > 0; n_still--) {
    if (mill_random_uniform(&r) * n_still < n_left_out) {
      left_out[n - n_still] = 1;
      n_left_out--;
    }
  }
}

/* List the good models in *good [*n], with *n 0 at the call; the caller frees *good in any case. */
static int find_good(const job *j, int *n, int **good)
{
  int n_to_do = 0;
  const mill_grid_info *info = &j->info;
  MILL_CHECK(MILL_ALLOC(info->n_model, good));
  for (int i = 0; i < info->n_model; i++) {
    n_to_do += info->status[i] == MILL_GRID_TO_DO;
    if (info->status[i] == MILL_GRID_GOOD)
      (*good)[(*n)++] = i;
  }
  if (n_to_do > 0 && !j->o.unfinished)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: %d of its %d models are still to do; wait until starmill library build "
                      "has ended, or give --unfinished",
                      j->o.input, n_to_do, info->n_model);
  return MILL_OK;
}

/* Divide the good models into those to train on and a random part that measures the error. */
static int split_models(job *j)
{
  MILL_OWNED int *good = NULL;
  MILL_OWNED unsigned char *left_out = NULL;
  mill_train_split *s = &j->split;
  MILL_CHECK(find_good(j, &s->n, &good));
  const int n_left_out = (int)(j->o.left_out * s->n + 0.5);
  s->n_train = s->n - n_left_out;
  const int least = (int)fmax(2 * j->o.n_error, MIN_LEFT_OUT);
  if (n_left_out < least && j->o.n_error >= 0)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%d of %d models are left out; --model-error needs %d: raise --left-out",
                      n_left_out, s->n, least);
  if (s->n_train < MIN_MODEL)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: %d good models, %d to train on: training needs %d; give a larger grid",
                      j->o.input, s->n, s->n_train, MIN_MODEL);
  MILL_CHECK(MILL_ALLOC(s->n, &s->model));
  MILL_CHECK(MILL_ALLOC(s->n, &left_out));
  choose_left_out(j->o.arm.net.seed, s->n, n_left_out, left_out);
  /* at: next free index of s->model, [0] for a model to train on, [1] for a model left out */
  for (int k = 0, at[2] = {0, s->n_train}; k < s->n; k++)
    s->model[at[left_out[k]]++] = good[k];
  return MILL_OK;
}

/* Standardise n values of a label, `stride` numbers apart in x; set the label's mean and std. */
static int map_values(size_t n, size_t stride, double *x, mill_label *label)
{
  double sum = 0, square = 0;
  const double given = x[0]; /* for the message: x is changed below */
  const int is_teff = strcmp(label->name, "teff") == 0;
  for (size_t i = 0; i < n * stride; i += stride) {
    if (is_teff && !(x[i] > 0))
      return MILL_ERROR(MILL_ERR_INPUT, "label teff is %g; it must be above 0", x[i]);
    x[i] = is_teff ? log10(x[i]) : x[i];
    sum += x[i];
  }
  label->mean = sum / (double)n;
  for (size_t i = 0; i < n * stride; i += stride) {
    x[i] -= label->mean;
    square += pow(x[i], 2);
  }
  label->std = sqrt(square / (double)n);
  if (!(label->std > 1e-9 * (1 + fabs(label->mean))))
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "label %s is %g in all %zu spectra in use; leave it out or keep a wider range", label->name,
        given, n);
  for (size_t i = 0; i < n * stride; i += stride)
    x[i] /= label->std;
  return MILL_OK;
}

/* Name the library's labels and arms; set j->mapped, the mapped labels of the good models. */
static int make_frame(job *j)
{
  mill_library *lib = j->lib;
  const mill_grid_info *info = &j->info;
  const size_t n = (size_t)j->split.n, n_label = (size_t)info->n_label;
  mill_columns columns;
  MILL_CHECK(MILL_ALLOC(n * n_label, &j->mapped));
  for (size_t i = 0; i < n; i++)
    memcpy(j->mapped + i * n_label, info->value + (size_t)j->split.model[i] * n_label,
           n_label * sizeof *j->mapped);
  lib->n_label = info->n_label;
  for (size_t l = 0; l < n_label; l++) {
    mill_label *label = &lib->label[l];
    snprintf(label->name, sizeof label->name, "%s", info->label[l]);
    const char *text = strcmp(label->name, "alpha") == 0 ? "ALPHAFE" : label->name;
    for (size_t i = 0; text[i]; i++)
      label->column[i] =
          (char)(isalnum((unsigned char)text[i]) ? toupper((unsigned char)text[i]) : '_');
    MILL_CHECK(map_values(n, n_label, j->mapped + l, label));
  }
  lib->n_arm = info->n_arm;
  for (int a = 0; a < info->n_arm; a++)
    snprintf(lib->arm[a].name, sizeof lib->arm[a].name, "%s", info->arm[a].name);
  /* check the columns now: a fit would refuse them after hours of training */
  return mill_columns_fits(lib, j->o.input, MILL_WITH_ANY_FIT, &columns);
}

/* Open the grid file and prepare its models; callback of mill_mpi_rank0_first. */
static int open_grid(void *context)
{
  job *j = context;
  MILL_CHECK(mill_grid_open(j->o.input, &j->grid, &j->info));
  MILL_CHECK(split_models(j));
  return make_frame(j);
}

static int prepare(job *j)
{
  const mill_train_options *o = &j->o;
  MILL_CHECK(name_file(o->checkpoint, o->output, ".training", j->checkpoint));
  MILL_CHECK(name_file(o->stop_file, o->output, ".stop", j->stop_file));
  MILL_CHECK(name_file(NULL, o->output, ".losses.csv", j->table));
  MILL_CHECK(name_file(NULL, j->checkpoint, ".networks", j->trained));
  MILL_CHECK(mill_thread_check_number(o->n_thread));
  MILL_CHECK(j->mpi->rank == 0 ? claim_files(j) : MILL_OK);
  return mill_stop_signal_catch();
}

/* Return the operations of a training step, in millions, in the arm with most outputs. */
static int64_t step_mflop(const job *j)
{
  mill_train_shape shape;
  const mill_train_arm_settings *s = &j->o.arm;
  int n_out = s->n_component > 0 ? s->n_component : MILL_TRAIN_MOST_COMPONENT;
  if (s->last == MILL_TRAIN_PIXELS) {
    n_out = 0;
    for (int a = 0; a < j->info.n_arm; a++)
      n_out = j->info.arm[a].n_pix > n_out ? j->info.arm[a].n_pix : n_out;
  }
  mill_train_shape_of(&s->net, j->info.n_label, n_out, &shape);
  return (int64_t)ceil(1e3 * mill_train_gflop(&shape, s->net.batch));
}

static int choose_auto(const job *j, int *has_gpu)
{
  char begun[8] = "";
  const char *choice = NULL;
  MILL_CHECK(mill_mpi_agree(
      j->mpi,
      j->mpi->rank == 0 ? mill_train_file_backend(j->checkpoint, sizeof begun, begun) : MILL_OK));
  return mill_backend_settle(j->mpi, MILL_CROSSOVER_TRAIN, j->checkpoint, *begun ? begun : NULL,
                             step_mflop(j), j->o.n_thread, &choice, has_gpu);
}

/* Choose CPU or GPU for the training, the same on all ranks. */
static int choose_ops(const job *j, const mill_train_ops **ops)
{
  int code = MILL_OK, has_gpu = j->o.backend == MILL_WORD_CUDA;
  *ops = mill_train_ops_cpu();
  if (j->o.backend == MILL_WORD_AUTO)
    MILL_CHECK(choose_auto(j, &has_gpu));
  else if (has_gpu)
    MILL_CHECK(mill_backend_place(j->mpi, 0));
  if (!has_gpu)
    return MILL_OK;
  *ops = mill_train_ops_cuda(&code);
  return mill_mpi_agree(j->mpi, code);
}

static int train(job *j)
{
  MILL_AT_END(mill_blas_end) int n_blas = 0;
  mill_train_options *o = &j->o;
  const mill_train_ops *ops = NULL;
  if (o->n_thread == 0)
    MILL_CHECK(mill_mpi_share_of_cores(j->mpi, &o->n_thread));
  o->arm.net.n_thread = o->n_thread;
  MILL_CHECK(mill_mpi_agree(j->mpi, mill_blas_begin(o->n_thread, &n_blas)));
  MILL_CHECK(choose_ops(j, &ops));
  const mill_train_networks networks = {.mpi = j->mpi,
                                        .ops = ops,
                                        .settings = &o->arm,
                                        .grid = j->grid,
                                        .info = &j->info,
                                        .split = &j->split,
                                        .mapped = j->mapped,
                                        .checkpoint = j->checkpoint,
                                        .lock = &j->lock,
                                        .interval_s = o->interval_s,
                                        .stop_file = j->stop_file,
                                        .table = j->table};
  return mill_train_networks_run(&networks, j->lib);
}

static int train_networks(job *j)
{
  MILL_CHECK(mill_mpi_agree(j->mpi, prepare(j)));
  MILL_CHECK(mill_mpi_rank0_first(j->mpi, open_grid, j));
  MILL_CHECK(train(j));
  return mill_mpi_agree(j->mpi, j->mpi->rank == 0
                                    ? mill_trained_write(j->trained, j->lib, j->split.n,
                                                         j->split.n_train, j->split.model)
                                    : MILL_OK);
}

/* Train networks and write them for Python (mill_trained_write).  Collective. */
static int train_in_c(const mill_mpi *mpi, int argc, char **argv)
{
  int err = MILL_OK;
  MILL_OWNED job *j = NULL;
  MILL_TRY(MILL_ALLOC(1, &j));
  j->mpi = mpi;
  MILL_TRY(MILL_ALLOC(1, &j->lib));
  MILL_TRY(mill_mpi_agree(mpi, mill_train_options_parse(argc, argv, &j->o)));
  MILL_TRY(train_networks(j));
done:
  fflush(stdout);
  if (j) {
    mill_lock_release(&j->lock);
    mill_grid_close(j->grid);
    mill_grid_info_clear(&j->info);
    mill_library_clear(j->lib);
    MILL_FREE(j->split.model, j->mapped, j->lib);
  }
  /* other ranks may wait for a rank without memory: with MILL_ERR_MPI mill_mpi_job aborts them */
  return err == MILL_ERR_MEMORY ? MILL_ERR_MPI : err;
}

/* ---- the job ---- */

const mill_option_help mill_library_train_help = {&mill_library_train_table, NULL};

/* Replace this process by Python.  Its arguments: NAME=VALUE for each given option, NAME for each
 * other option, then -- and the grid file. */
static int end_in_python(int argc, char **argv)
{
  int err = MILL_OK, status = 0, first = 0, n = 2;
  const char *text[MILL_OPTION_MAX];
  char *line[MILL_OPTION_MAX + 4] = {(char *)"library", (char *)"train"};
  const mill_option_table *table = &mill_library_train_table;
  MILL_TRY(mill_option_parse(table, argc, argv, NULL, text, &first));
  for (int i = 0; table->row[i].name; i++)
    if (text[i] && strcmp(table->row[i].name, "help") == 0) {
      if (mill_python_is_other_rank()) /* rank 0 prints */
        return 0;
      mill_option_print_help(table, NULL, stdout);
      return mill_error_exit_status(mill_text_flush(stdout, "help"));
    }
  for (int i = 0; table->row[i].name; i++) {
    const mill_option *row = &table->row[i];
    if (row->kind == MILL_OPTION_HEADING)
      continue;
    const size_t size = strlen(row->name) + (text[i] ? strlen(text[i]) : 0) + 2;
    MILL_TRY(MILL_ALLOC(size, &line[n]));
    snprintf(line[n++], size, "%s%s%s", row->name, text[i] ? "=" : "", text[i] ? text[i] : "");
  }
  line[n] = (char *)"--";
  line[n + 1] = argv[first];
  status = mill_python_job(n + 2, line);
done:
  for (int i = 2; i < n; i++)
    mill_free(line[i]);
  return err == MILL_OK ? status : mill_job_end("library train", err);
}

/* If the emulator is a network, train it for each arm; then let Python make the library. */
static int train_and_make(int argc, char **argv)
{
  mill_train_options o;
  const int is_wrong = mill_train_options_parse(argc, argv, &o) != MILL_OK;
  if (is_wrong || (o.emulator == MILL_TRAIN_NETWORK && !o.help)) { /* train_in_c reports mistakes */
    const int status = mill_mpi_job("starmill library train", train_in_c, argc, argv);
    if (status != 0 || mill_python_is_other_rank()) /* Python runs only on rank 0 */
      return status;
    /* keep signals pending until Python handles them */
    mill_stop_signal_hold();
    if (mill_stop_signal_seen())
      return mill_job_end("library train",
                          MILL_ERROR(MILL_ERR_STOPPED, "stopped in good order before the library "
                                                       "was made; give the same command again"));
  }
  return end_in_python(argc, argv);
}

int mill_job_library(int argc, char **argv)
{
  return argc > 1 && strcmp(argv[1], "train") == 0 ? train_and_make(argc - 1, argv + 1)
                                                   : mill_python_job(argc, argv);
}
