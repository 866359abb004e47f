#include "jobs/library/library_train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

#include "io/library/grid_file.h"
#include "io/library/library_file.h"
#include "src/run/backend_choice.h"
#include "src/run/stop_watch.h"
#include "jobs/library/library_left_out.h"
#include "jobs/library/library_rows.h"
#include "jobs/library/train_choice.h"
#include "jobs/library/train_functions.h"
#include "jobs/library/train_networks.h"
#include "kernels/base/error.h"
#include "src/libraries/library_make.h"
#include "src/ranks/same_on_ranks.h"
#include "src/system/blas_threads.h"
#include "src/system/file_roles.h"
#include "src/system/random.h"
#include "src/system/regular_file.h"
#include "src/system/stop_signal.h"
#include "src/system/thread.h"

enum { MIN_MODEL = 12, SPLIT_STREAM = 0x73706c74 /* "splt" */ };

/* ---- options ------------------------------------------------------------------------------------
 */

typedef struct options {
  const char *output, *checkpoint, *stop_file;
  int overwrite, help, emulator, backend, n_thread, n_guess, hulls, is_linear, unfinished;
  int n_error; /* components of a model error to keep; -1: none is kept */
  double left_out, interval_s;
  mill_train_arm_settings arm;
} options;

/* the others have options of their own (train_functions.h), and do not come here */
static const char *const emulator_words[] = {"network", "radial", "splines", "linear", NULL};
static const char *const schedule_words[] = {"cosine", "plateau", NULL};
static const char *const loss_words[] = {"l2", "l1", "huber", NULL};
static const char *const unit_words[] = {"noise", "spread", NULL};
static const char *const last_words[] = {"components", "pixels", NULL};
static_assert(MILL_TRAIN_COSINE == 0 && MILL_TRAIN_PLATEAU == 1 && MILL_TRAIN_L2 == 0 &&
                  MILL_TRAIN_L1 == 1 && MILL_TRAIN_HUBER == 2 && MILL_TRAIN_NOISE == 0 &&
                  MILL_TRAIN_SPREAD == 1 && MILL_TRAIN_COMPONENTS == 0 && MILL_TRAIN_PIXELS == 1,
              "order of the words");

static int take_hidden(const mill_option *row, const char *text, void *base)
{
  return mill_train_read_hidden(row->name, text, &((options *)base)->arm.net);
}

#define AT(member)  MILL_AT(options, member)
#define NET(member) MILL_AT(options, arm.net.member)
const mill_option_table mill_library_train_table = {
    "starmill library train",
    "usage: starmill library train --output LIB.h5 [options] GRID.h5\n"
    "\n"
    "train --emulator network, or without --emulator, makes a library from the spectra of a grid\n"
    "file (library build): a network for each arm, trained by all ranks.  The same command\n"
    "continues what was stopped.\n"
    "\n",
    NULL,
    (const mill_option[]){
        MILL_LIBRARY_OUTPUT_ROWS(options),
        {"emulator", MILL_OPTION_CHOICE, AT(emulator), .words = emulator_words,
         .help = "what stands between labels and spectra"},
        {"left-out", MILL_OPTION_REAL, AT(left_out), .max = 0.5, .argument = "PART",
         .help =
             "part of the models that is not learned; they say how good it is and when it is best "
             "(default 0.1); 0: no report, and the last layer stays as the steps leave it"},
        {"hidden", MILL_OPTION_OTHER, .take = take_hidden, .argument = "N,N,...",
         .help = "neurons of the hidden layers (default 256,256,200)"},
        {"epochs", MILL_OPTION_COUNT, NET(n_epoch), .min = 1, .max = 10000000,
         .help = "passes over all models (default 400)"},
        {"batch", MILL_OPTION_COUNT, NET(batch), .min = 1, .max = 1 << 20,
         .help = "models of a step, of all ranks together (default 64)"},
        {"rate", MILL_OPTION_REAL, NET(rate), .min = MILL_ABOVE_0, .max = 0.999,
         .help = "learning rate to begin with (default 0.005)"},
        {"least-rate", MILL_OPTION_REAL, NET(least_rate), .max = 0.999,
         .help = "and to end with (default 1e-6)"},
        {"schedule", MILL_OPTION_CHOICE, NET(schedule), .words = schedule_words,
         .help = "how the rate falls: as half a cosine over all epochs, or by --factor where the "
                 "loss of the models left out has not fallen for --patience epochs"},
        {"patience", MILL_OPTION_COUNT, NET(patience), .min = 1, .max = 1000000,
         .help = "epochs (default 20)"},
        {"factor", MILL_OPTION_REAL, NET(factor), .min = 0.001, .max = 0.999,
         .help = "by which the rate falls (default 0.5)"},
        {"stop-after", MILL_OPTION_COUNT, NET(stop_after), .max = 10000000,
         .help = "end after as many epochs without a lower loss of the models left out; 0: never"},
        {"decay", MILL_OPTION_REAL, NET(decay), .max = 100,
         .help = "decoupled weight decay (default 0)"},
        {"loss", MILL_OPTION_CHOICE, NET(loss), .words = loss_words,
         .help = "of a pixel; l1 and huber need --last pixels"},
        {"huber", MILL_OPTION_REAL, NET(huber), .min = MILL_ABOVE_0, .max = DBL_MAX,
         .help = "residual, in units of the loss, from which huber is linear (default 1)"},
        {"unit", MILL_OPTION_CHOICE, AT(arm.unit), .words = unit_words,
         .help = "of residuals: the noise of a spectrum with the same S/N everywhere, or each "
                 "pixel's spread over the models"},
        {"sn", MILL_OPTION_REAL, AT(arm.sn), .min = MILL_ABOVE_0, .max = DBL_MAX,
         .help = "that S/N (default 100)"},
        {"linear-flux", MILL_OPTION_FLAG, AT(is_linear),
         .help = "learn flux in the place of its logarithm"},
        {"last", MILL_OPTION_CHOICE, AT(arm.last), .words = last_words,
         .help = "train scores of principal components, with the loss of the pixels, or every "
                 "weight of the pixels"},
        {"components", MILL_OPTION_COUNT, AT(arm.n_component), .min = 1, .max = MILL_MAX_WIDTH,
         .help = "principal components (default: those that leave 1e-8 of the variance, at most "
                 "256)"},
        {"memory", MILL_OPTION_REAL, AT(arm.keep_gib), .max = DBL_MAX, .argument = "GIB",
         .help = "with --last pixels: spectra of an arm that take more of a rank's memory are read "
                 "for every step (default 4)"},
        MILL_TRAIN_GUESS_ROWS(options, n_guess, hulls),
        {"seed", MILL_OPTION_SEED, NET(seed), .argument = "N",
         .help = "of what is left out, first weights and batches (default 1)"},
        {"model-error", MILL_OPTION_COUNT, AT(n_error), .max = MILL_MAX_ERROR, .argument = "N",
         .help = "keep what the templates get wrong of the models left out, with N components; "
                 "fits then count it (default: not kept)"},
        {"unfinished", MILL_OPTION_FLAG, AT(unfinished),
         .help = "take the models that there are of a grid file whose building has not ended"},
        {"threads", MILL_OPTION_COUNT, AT(n_thread), .min = 1, .max = 4096,
         .help = "threads of a rank (default: its share of the cores); the result does not depend "
                 "on them"},
        {"backend", MILL_OPTION_CHOICE, AT(backend), .words = mill_backend_words,
         .help =
             "what computes components and gradients: the CPU, or a GPU for each rank, by cuBLAS "
             "and cuSOLVER; auto is the CPU until starmill bench train --keep has measured from "
             "which size of a step on the GPU is faster"},
        {"products", MILL_OPTION_CHOICE, NET(precision), .words = mill_train_product_words,
         .help = "factors of products on a GPU; sums are float32 always"},
        {"checkpoint", MILL_OPTION_TEXT, AT(checkpoint), .argument = "FILE",
         .help = "from which the same command goes on (default LIB.h5.training); removed at the "
                 "end"},
        {"checkpoint-interval", MILL_OPTION_REAL, AT(interval_s), .max = DBL_MAX, .argument = "S",
         .help = "seconds from one to the next (default 60)"},
        {"stop-file", MILL_OPTION_TEXT, AT(stop_file), .argument = "FILE",
         .help = "when it appears, save and end with status 75, as SIGTERM does (default "
                 "LIB.h5.stop)"},
        MILL_OPTION_HELP(options),
        {0}}};
#undef NET
#undef AT

/* ---- job ----------------------------------------------------------------------------------------
 */

enum { MAX_PATH = 4096 };

typedef struct job {
  mill_mpi mpi;
  options o;
  const char *input;
  char checkpoint[MAX_PATH], stop_file[MAX_PATH], table[MAX_PATH];
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

/* On rank 0: names of files that may be read and written. */
static int check_files(const job *j)
{
  mill_file_roles roles = {0};
  const options *o = &j->o;
  MILL_CHECK(mill_file_roles_write(&roles, "--output", o->output));
  MILL_CHECK(mill_file_roles_write(&roles, o->checkpoint ? "--checkpoint" : "the checkpoint",
                                   j->checkpoint));
  MILL_CHECK(mill_file_roles_write(&roles, "the table of losses", j->table));
  MILL_CHECK(mill_file_roles_read(&roles, "the grid file", j->input));
  MILL_CHECK(
      mill_file_roles_read(&roles, o->stop_file ? "--stop-file" : "the stop file", j->stop_file));
  MILL_CHECK(mill_library_writable(o->output, o->overwrite));
  /* a training that goes on has its own */
  if (!o->overwrite && access(j->table, F_OK) == 0 && access(j->checkpoint, F_OK) != 0)
    return MILL_ERROR(
        MILL_ERR_OUTPUT,
        "%s: the table of losses of another training is there; give another --output or "
        "--overwrite",
        j->table);
  return mill_stop_file_absent(j->stop_file);
}

/* What is left out, of n models in their order: by random numbers. */
static void choose_left_out(uint64_t seed, int n, int n_left_out, unsigned char *left_out)
{
  mill_random r;
  mill_random_begin(&r, seed, 0, SPLIT_STREAM);
  for (int n_still = n; n_still > 0; n_still--) { /* one after another (Knuth's algorithm S) */
    if (mill_random_uniform(&r) * n_still < n_left_out) {
      left_out[n - n_still] = 1;
      n_left_out--;
    }
  }
}

static int split_models(job *j)
{
  int err = MILL_OK, *good = NULL;
  unsigned char *left_out = NULL;
  const mill_grid_info *info = &j->info;
  mill_train_split *s = &j->split;
  MILL_TRY(mill_good_models(info, j->input, j->o.unfinished, &s->n, &good));
  const int n_left_out = (int)(j->o.left_out * s->n + 0.5);
  s->n_train = s->n - n_left_out;
  if (n_left_out < MILL_MODEL_ERROR_MIN && j->o.n_error >= 0)
    MILL_FAIL(MILL_ERR_INPUT,
              "%d of %d models are left out, and a model error needs %d: give a larger --left-out",
              n_left_out, s->n, MILL_MODEL_ERROR_MIN);
  if (s->n_train < MIN_MODEL)
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: %d good models, of which %d would be learned; at least %d are needed", j->input,
              s->n, s->n_train, MIN_MODEL);
  MILL_TRY(MILL_ALLOC(s->n, &s->model));
  MILL_TRY(MILL_ALLOC(s->n, &left_out));
  choose_left_out(j->o.arm.net.seed, s->n, n_left_out, left_out);
  for (int k = 0, at[2] = {0, s->n_train}; k < s->n; k++)
    s->model[at[left_out[k]]++] = good[k];
done:
  MILL_FREE(good, left_out);
  return err;
}

/* Labels, hulls and templates of the guess, from the good models, and arms without emulators. */
static int make_frame(job *j)
{
  int err = MILL_OK;
  mill_library *lib = j->lib;
  const mill_grid_info *info = &j->info;
  const size_t n_label = (size_t)info->n_label;
  const int n = j->split.n;
  double *value = NULL;
  MILL_TRY(MILL_ALLOC((size_t)n * n_label, &value));
  MILL_TRY(MILL_ALLOC((size_t)n * n_label, &j->mapped));
  for (int i = 0; i < n; i++)
    memcpy(value + (size_t)i * n_label, info->value + (size_t)j->split.model[i] * n_label,
           n_label * sizeof *value);
  MILL_TRY(mill_library_frame(info, j->input, lib));
  MILL_TRY(mill_library_make_labels(n, value, lib, j->mapped));
  MILL_TRY(mill_library_make_hulls(n, j->mapped, j->o.hulls, lib));
  MILL_TRY(mill_library_spread_guess(n, value, j->mapped, NULL, j->o.n_guess, lib, NULL));
  snprintf(lib->name, sizeof lib->name, "network of %.100s", mill_base_name(j->input));
  for (int a = 0; a < lib->n_arm; a++)
    snprintf(lib->arm[a].revision, sizeof lib->arm[a].revision, "network");
done:
  mill_free(value);
  return err;
}

/* For mill_mpi_rank0_first. */
static int open_grid(void *context)
{
  job *j = context;
  MILL_CHECK(mill_grid_open(j->input, &j->grid, &j->info));
  MILL_CHECK(split_models(j));
  return make_frame(j);
}

/* Options that would be ignored. */
static int check_needs(const options *o, const unsigned char *given)
{
  const mill_train_settings *net = &o->arm.net;
  const int plateau = net->schedule == MILL_TRAIN_PLATEAU;
  const mill_option_need need[] = {
      {"huber", net->loss == MILL_TRAIN_HUBER, "without --loss huber"},
      {"patience", plateau, "without --schedule plateau"},
      {"factor", plateau, "without --schedule plateau"},
      {"sn", o->arm.unit == MILL_TRAIN_NOISE, "with --unit spread"},
      {"memory", o->arm.last == MILL_TRAIN_PIXELS, "without --last pixels"}};
  return mill_option_check_needs(&mill_library_train_table, given,
                                 (int)(sizeof need / sizeof *need), need);
}

static int parse(int argc, char **argv, options *o, int *first)
{
  unsigned char given[MILL_OPTION_MAX];
  MILL_CHECK(mill_option_refuse_others(&mill_library_train_table, &mill_train_functions_table,
                                       "--emulator radial, splines and linear", argc, argv));
  MILL_CHECK(mill_option_parse(&mill_library_train_table, argc, argv, o, given, first));
  return check_needs(o, given);
}

static int prepare(job *j, int argc, char **argv, int first)
{
  options *o = &j->o;
  if (!o->output)
    return MILL_ERROR(MILL_ERR_USAGE, "library train needs --output LIB.h5");
  if (argc - first != 1)
    return MILL_ERROR(MILL_ERR_USAGE, "library train takes one grid file, not %d", argc - first);
  if (o->n_error >= 0 && !(o->left_out > 0))
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--model-error is measured on models left out: give --left-out above 0");
  j->input = argv[first];
  o->arm.log_flux = !o->is_linear;
  if (o->arm.net.precision != MILL_TRAIN_FLOAT32 && o->backend != MILL_WORD_CUDA)
    return MILL_ERROR(MILL_ERR_USAGE, "--products %s is of GPUs: give --backend cuda",
                      mill_train_product_words[o->arm.net.precision]);
  MILL_CHECK(mill_train_arm_settings_check(&o->arm));
  MILL_CHECK(name_file(o->checkpoint, o->output, ".training", j->checkpoint));
  MILL_CHECK(name_file(o->stop_file, o->output, ".stop", j->stop_file));
  MILL_CHECK(name_file(NULL, o->output, ".losses.csv", j->table));
  MILL_CHECK(mill_thread_check_number(o->n_thread));
  return mill_stop_signal_catch();
}

/* Millions of operations of a step of the widest arm. */
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

static int train(job *j)
{
  int err = MILL_OK, n_blas = 0;
  options *o = &j->o;
  const mill_train_ops *ops = NULL;
  if (o->n_thread == 0)
    MILL_TRY(mill_mpi_share_of_cores(&j->mpi, &o->n_thread));
  o->arm.net.n_thread = o->n_thread;
  MILL_TRY(mill_mpi_agree(&j->mpi, mill_blas_begin(o->n_thread, &n_blas)));
  MILL_TRY(
      mill_train_choose_ops(&j->mpi, o->backend, j->checkpoint, step_mflop(j), o->n_thread, &ops));
  const mill_train_networks networks = {.mpi = &j->mpi,
                                        .ops = ops,
                                        .settings = &o->arm,
                                        .grid = j->grid,
                                        .info = &j->info,
                                        .split = &j->split,
                                        .mapped = j->mapped,
                                        .checkpoint = j->checkpoint,
                                        .interval_s = o->interval_s,
                                        .stop_file = j->stop_file,
                                        .table = j->table};
  MILL_TRY(mill_train_networks_run(&networks, j->lib));
done:
  mill_blas_end(n_blas);
  return err;
}

/* On rank 0: the report from the models left out. */
static int measure(job *j)
{
  int err = MILL_OK;
  char how[512];
  const mill_train_split *s = &j->split;
  const int n_error = j->o.n_error < 0 ? MILL_MODEL_ERROR_COMPONENT : j->o.n_error;
  if (s->n == s->n_train)
    return MILL_OK;
  snprintf(how, sizeof how,
           "of %d models; the others were learned, and these said when a training was at its best",
           s->n);
  err =
      mill_library_measure_rows(j->lib, j->grid, &j->info, s->n - s->n_train, s->model + s->n_train,
                                j->o.n_thread, n_error, how, j->o.n_error >= 0, j->lib);
  return j->o.n_error < 0 ? mill_without_report(err) : err; /* what has been trained is good */
}

/* On rank 0. */
static int write_library(job *j)
{
  char end[MAX_PATH];
  MILL_CHECK(measure(j));
  printf("losses: %s\n", j->table);
  MILL_CHECK(mill_library_keep(j->o.output, j->o.overwrite, j->lib));
  MILL_CHECK(mill_resolve_links(j->checkpoint, end, sizeof end));
  unlink(end); /* a name that stays does no harm: the library says that it is done */
  return MILL_OK;
}

static int run(job *j, int argc, char **argv)
{
  int first = 0;
  MILL_CHECK(mill_mpi_agree(&j->mpi, parse(argc, argv, &j->o, &first)));
  if (mill_option_helped(j->o.help, j->mpi.rank, &mill_library_train_table, NULL))
    return MILL_OK;
  MILL_CHECK(mill_mpi_agree(&j->mpi, prepare(j, argc, argv, first)));
  MILL_CHECK(mill_mpi_agree(&j->mpi, j->mpi.rank == 0 ? check_files(j) : MILL_OK));
  MILL_CHECK(mill_mpi_rank0_first(&j->mpi, open_grid, j));
  MILL_CHECK(train(j));
  return mill_mpi_agree(&j->mpi, j->mpi.rank == 0 ? write_library(j) : MILL_OK);
}

int mill_job_library_train(int argc, char **argv)
{
  int err = MILL_OK;
  job *j = NULL;
  MILL_TRY(MILL_ALLOC(1, &j));
  MILL_TRY(MILL_ALLOC(1, &j->lib));
  mill_train_arm_settings_init(&j->o.arm);
  j->o.n_guess = 300;
  j->o.left_out = 0.1;
  j->o.n_error = -1;
  j->o.interval_s = 60;
  MILL_TRY(mill_mpi_dup(MPI_COMM_WORLD, &j->mpi));
  MILL_TRY(run(j, argc, argv));
done:
  if (err != MILL_OK && (!j || j->mpi.rank == 0 || err == MILL_ERR_MPI))
    fprintf(stderr, "starmill library train: %s\n", mill_error_message());
  fflush(stdout);
  /* the other ranks may be waiting for this one */
  if (err == MILL_ERR_MPI || (err == MILL_ERR_MEMORY && j && j->mpi.size > 1))
    MPI_Abort(MPI_COMM_WORLD, mill_error_exit_status(err));
  if (j) {
    mill_grid_close(j->grid);
    mill_grid_info_clear(&j->info);
    mill_library_clear(j->lib);
    if (j->mpi.comm != MPI_COMM_NULL)
      MPI_Comm_free(&j->mpi.comm);
    MILL_FREE(j->split.model, j->mapped, j->lib);
  }
  mill_free(j);
  return mill_error_exit_status(err);
}
