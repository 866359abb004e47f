/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/library/train_networks.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/files/sha256.h"
#include "io/library/train_file.h"
#include "kernels/base/clock.h"
#include "src/ranks/same_on_ranks.h"
#include "src/system/progress.h"
#include "src/system/stop_signal.h"

enum { MAX_IDENTITY = 8192, LOOKED_AT = 16 };
static const double SAY_S = 5, LOOK_S = 0.2;

/* A training under way. */
typedef struct run {
  const mill_train_networks *n;
  int arm; /* arm being trained */
  char identity[MAX_IDENTITY];
  mill_train_state state[MILL_MAX_ARM];
  int *row;     /* [n_row] rows of the grid file to read */
  size_t n_row; /* size of row */
  double saved_s, said_s, looked_s;
  double began_s, first_s; /* wall times when this call began the arm, ended its first epoch */
  int first_epoch;         /* epochs of the arm when this call began it */
  int stop;
} run;

/* ---- what a training is ---- */

/* Digest the training's data: settings, labels and some spectra of the grid, split of models. */
static int digest_models(const mill_train_networks *n, char hex[65])
{
  int err = MILL_OK;
  const mill_grid_info *info = n->info;
  MILL_OWNED char *settings = NULL;
  mill_sha256 sha;
  mill_sha256_init(&sha);
  MILL_TRY(mill_grid_read_settings(n->grid, &settings));
  mill_sha256_update(&sha, settings, strlen(settings));
  mill_sha256_update(&sha, info->value,
                     (size_t)info->n_model * (size_t)info->n_label * sizeof *info->value);
  mill_sha256_update(&sha, n->split->model, (size_t)n->split->n * sizeof *n->split->model);
  for (int a = 0; a < info->n_arm; a++) {
    const mill_grid_arm *arm = &info->arm[a];
    mill_sha256_update(&sha, &arm->n_pix, sizeof arm->n_pix);
    mill_sha256_update(&sha, &arm->ln_wave0, sizeof arm->ln_wave0);
    mill_sha256_update(&sha, &arm->ln_step, sizeof arm->ln_step);
    MILL_OWNED float *flux = NULL;
    MILL_TRY(MILL_ALLOC(arm->n_pix, &flux));
    for (int64_t k = 0; k < LOOKED_AT && k < n->split->n; k++) {
      MILL_TRY(mill_grid_read(n->grid, a, 1, &n->split->model[k * n->split->n / LOOKED_AT], flux));
      mill_sha256_update(&sha, flux, (size_t)arm->n_pix * sizeof *flux);
    }
  }
done:
  mill_sha256_final(&sha, hex);
  if (err == MILL_OK && !*hex)
    err = MILL_ERROR(MILL_ERR_MEMORY, "no memory for a checksum of the training");
  return err;
}

/* Write settings and data to r->identity.  A checkpoint of another identity is not continued. */
static int identify(run *r)
{
  const mill_train_networks *n = r->n;
  const mill_train_arm_settings *s = n->settings;
  const mill_train_settings *net = &s->net;
  char hidden[128] = "", hex[65];
  MILL_CHECK(digest_models(n, hex));
  for (int l = 0, at = 0; l < net->n_hidden; l++)
    at += snprintf(hidden + at, sizeof hidden - (size_t)at, "%s%d", l ? "," : "", net->width[l]);
  snprintf(r->identity, sizeof r->identity,
           "grid file and models left out: %s\nmodels: %d of which %d are learned\n"
           "hidden: %s\nepochs: %d\nbatch: %d\nrate: %.17g\nleast rate: %.17g\nschedule: %d\n"
           "patience: %d\nfactor: %.17g\nstop after: %d\ndecay: %.17g\nloss: %d\nhuber: %.17g\n"
           "unit: %d\nsn: %.17g\nlog flux: %d\nlast: %d\ncomponents: %d\nseed: %llu\n"
           "backend: %s\nproducts: %d\n",
           hex, n->split->n, n->split->n_train, hidden, net->n_epoch, net->batch, net->rate,
           net->least_rate, net->schedule, net->patience, net->factor, net->stop_after, net->decay,
           net->loss, net->huber, s->unit, s->sn, s->log_flux, s->last, s->n_component,
           (unsigned long long)net->seed, n->ops->name, net->precision);
  return MILL_OK;
}

/* Broadcast the arm's state that rank 0 has read from the checkpoint, if there is one. */
static int share_state(const mill_mpi *mpi, int most_epoch, mill_train_state *s)
{
  int code = MILL_OK;
  float **const array[] = {&s->param, &s->m, &s->v, &s->best};
  mill_train_state read = *s;
  MILL_CHECK_MPI(MPI_Bcast(&read, sizeof read, MPI_BYTE, 0, mpi->comm));
  if (!read.param)
    return MILL_OK;
  if (mpi->rank != 0) {
    *s = read; /* still has rank 0's addresses, replaced below */
    s->epoch = NULL;
    for (int i = 0; i < 4; i++)
      *array[i] = NULL;
    code = MILL_ALLOC(most_epoch, &s->epoch);
    for (int i = 0; i < 4 && code == MILL_OK; i++)
      code = MILL_ALLOC(s->n_param, array[i]);
  }
  MILL_CHECK(mill_mpi_agree(mpi, code));
  for (int i = 0; i < 4; i++)
    MILL_CHECK_MPI(MPI_Bcast(*array[i], (int)s->n_param, MPI_FLOAT, 0, mpi->comm));
  const int n_byte = s->n_epoch * (int)sizeof *s->epoch;
  MILL_CHECK_MPI(MPI_Bcast(s->epoch, n_byte, MPI_BYTE, 0, mpi->comm));
  return MILL_OK;
}

/* Read the state of each arm's training from the checkpoint, if there is one, on all ranks. */
static int read_checkpoint(run *r)
{
  int code = MILL_OK, found = 0;
  const mill_train_networks *n = r->n;
  const int n_epoch = n->settings->net.n_epoch;
  if (n->mpi->rank == 0) {
    code = mill_train_file_read(n->checkpoint, r->identity, n_epoch, &found, r->state);
    if (code == MILL_OK && found)
      printf("%s: continuing from this checkpoint\n", n->checkpoint);
  }
  MILL_CHECK(mill_mpi_agree(n->mpi, code));
  for (int a = 0; a < n->info->n_arm; a++)
    MILL_CHECK(share_state(n->mpi, n_epoch, &r->state[a]));
  return MILL_OK;
}

/* ---- while it runs ---- */

/* Write the losses of all arms and epochs as a CSV table. */
static int write_table(const run *r)
{
  const mill_train_networks *n = r->n;
  FILE *out = fopen(n->table, "w");
  if (!out)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be written", n->table);
  fprintf(out, "arm,epoch,loss,loss_left_out,error_left_out,learning_rate,seconds\n");
  for (int a = 0; a < n->info->n_arm; a++)
    for (int i = 0; i < r->state[a].n_epoch; i++) {
      const mill_train_epoch *e = &r->state[a].epoch[i];
      fprintf(out, "%s,%d,%.9g,%.9g,%.6g,%.6g,%.3f\n", n->info->arm[a].name, i + 1, e->train,
              e->validation, mill_train_arm_error(n->settings, e->validation), e->rate, e->seconds);
    }
  const int failed = ferror(out);
  if (fclose(out) != 0 || failed)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be written, is the disk full?", n->table);
  return MILL_OK;
}

/* Convert a loss to an emulator's error, as text in `out`: in % of the flux with --unit noise, else
 * as a fraction of the pixels' spread over the models.  Return out. */
static const char *error_text(const run *r, double loss, char out[48])
{
  const double error = mill_train_arm_error(r->n->settings, loss);
  if (r->n->settings->unit == MILL_TRAIN_NOISE)
    snprintf(out, 48, "%.4f %%", 100 * error);
  else
    snprintf(out, 48, "%.5f of the spread", error);
  return out;
}

/* Name the models on which the error is measured. */
static const char *whose(const run *r)
{
  return r->n->split->n > r->n->split->n_train ? "models left out" : "the models";
}

/* Rank 0: print a line every SAY_S seconds and at an arm's end.  The time left includes the slow
 * first epoch of each later arm. */
static void say(run *r, const mill_train_state *state)
{
  const double now_s = mill_wall_s();
  const mill_train_epoch *e = &state->epoch[state->n_epoch - 1];
  const int n_epoch = r->n->settings->net.n_epoch;
  char error[48], best[48], left[32];
  if (state->n_epoch == r->first_epoch + 1)
    r->first_s = r->said_s = now_s;
  if (!state->ended && now_s - r->said_s < SAY_S)
    return;
  r->said_s = now_s;
  const double arms_left = r->n->info->n_arm - r->arm - 1,
               n_left = n_epoch * (1 + arms_left) - state->n_epoch; /* epochs */
  const double epoch_s = (now_s - r->first_s) / fmax(state->n_epoch - r->first_epoch - 1, 1);
  mill_progress_eta(n_left * epoch_s + arms_left * (r->first_s - r->began_s), left, sizeof left);
  printf("arm %s, epoch %d of %d: loss %.5g, error of %s %s (least %s, epoch %d), rate %.2g, at "
         "most %s left\n",
         r->n->info->arm[r->arm].name, state->n_epoch, n_epoch, e->train, whose(r),
         error_text(r, isnan(e->validation) ? e->train : e->validation, error),
         error_text(r, state->best_loss, best), state->best_epoch, e->rate, left);
  fflush(stdout);
}

/* Ask all ranks: does one want to stop (r->stop)?  Is it time to save (*save)? */
static int ask(run *r, const mill_train_state *state, int *save)
{
  int flag[2] = {0, 0}; /* stop, save */
  const double now_s = mill_wall_s();
  if (r->n->mpi->rank == 0 && now_s - r->looked_s >= LOOK_S) {
    r->looked_s = now_s;
    if (access(r->n->stop_file, F_OK) == 0)
      mill_stop_note(MILL_STOP_FILE);
  }
  flag[0] = mill_stop_reason() != MILL_STOP_NONE;
  flag[1] = r->n->mpi->rank == 0 && (state->ended || now_s - r->saved_s >= r->n->interval_s);
  MILL_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, flag, 2, MPI_INT, MPI_MAX, r->n->mpi->comm));
  r->stop = flag[0];
  *save = flag[0] || flag[1];
  return MILL_OK;
}

/* Rank 0: write the checkpoint and the table of losses. */
static int save_all(run *r)
{
  MILL_CHECK(mill_lock_keep(r->n->lock));
  MILL_CHECK(mill_train_file_write(r->n->checkpoint, r->identity, r->n->info->n_arm, r->state));
  MILL_CHECK(write_table(r));
  r->saved_s = mill_wall_s();
  return MILL_OK;
}

/* After an epoch, report progress and save the state if due; fail if a rank wants to stop. */
static int after_epoch(void *context, mill_train_state *state)
{
  int save = 0;
  run *r = context;
  const mill_mpi *mpi = r->n->mpi;
  MILL_CHECK(ask(r, state, &save));
  if (mpi->rank == 0)
    say(r, state);
  if (save) {
    MILL_CHECK(mill_train_gather(mpi, state));
    MILL_CHECK(mill_mpi_agree(mpi, mpi->rank == 0 ? save_all(r) : MILL_OK));
  }
  if (r->stop)
    return MILL_ERROR(
        MILL_ERR_STOPPED,
        "stopped after epoch %d of arm %s; saved in %s, and the same command continues",
        state->n_epoch, r->n->info->arm[r->arm].name, r->n->checkpoint);
  return MILL_OK;
}

/* ---- arms ---- */

/* the callback read of mill_train_arm_task */
static int read_models(void *context, int n, const int *model, float *flux)
{
  run *r = context;
  if ((size_t)n > r->n_row)
    MILL_CHECK(MILL_RENEW(&r->row, &r->n_row, n));
  for (int i = 0; i < n; i++)
    r->row[i] = r->n->split->model[model[i]];
  return mill_grid_read(r->n->grid, r->arm, n, r->row, flux);
}

/* Print the result of an arm's training. */
static void print_arm(const run *r, const mill_train_arm_report *report)
{
  char error[48], before[48];
  const mill_train_state *state = &r->state[r->arm];
  printf("arm %s: %d pixels, %d components leave %.2g of the variance (%.1f s); %d epochs in %.1f "
         "s",
         r->n->info->arm[r->arm].name, r->n->info->arm[r->arm].n_pix, report->n_component,
         report->rest, report->statistics_s, state->n_epoch, report->gradient_s);
  if (report->gflop > 0)
    printf(", %.1f GFLOP/s", report->gflop / report->gradient_s);
  printf("; %s error of %s %s", r->n->settings->net.loss == MILL_TRAIN_L1 ? "mean absolute" : "rms",
         whose(r), error_text(r, report->loss, error));
  if (report->loss < report->loss_unsolved)
    printf(" (%s before the last layer was solved)", error_text(r, report->loss_unsolved, before));
  printf("\n");
  fflush(stdout);
}

/* Train the emulator of arm r->arm, and report it on rank 0. */
static int train_arm(run *r, const float *x, mill_library *lib)
{
  const mill_train_networks *n = r->n;
  const mill_train_arm_task task = {.n_pix = n->info->arm[r->arm].n_pix,
                                    .n_label = n->info->n_label,
                                    .n = n->split->n,
                                    .n_train = n->split->n_train,
                                    .x = x,
                                    .read = read_models,
                                    .context = r};
  const mill_train_watch watch = {.after = after_epoch, .context = r};
  mill_train_arm_report report;
  r->began_s = mill_wall_s();
  r->first_epoch = r->state[r->arm].n_epoch;
  MILL_CHECK(mill_train_arm(n->mpi, n->ops, n->settings, &task, &watch, &r->state[r->arm],
                            &lib->arm[r->arm].emulator, &report));
  if (n->mpi->rank == 0)
    print_arm(r, &report);
  return MILL_OK;
}

int mill_train_networks_run(const mill_train_networks *networks, mill_library *lib)
{
  MILL_OWNED run *r = NULL;
  MILL_OWNED float *x = NULL;
  const size_t n = (size_t)networks->split->n * (size_t)networks->info->n_label;
  int err = MILL_ALLOC(1, &r);
  MILL_STEP(MILL_ALLOC(n, &x));
  if (err == MILL_OK) {
    r->n = networks;
    r->saved_s = mill_wall_s();
    err = identify(r);
  }
  MILL_TRY(mill_mpi_agree(networks->mpi, err));
  MILL_TRY(mill_same_on_ranks(networks->mpi, "settings", r->identity));
  for (size_t i = 0; i < n; i++)
    x[i] = (float)networks->mapped[i];
  MILL_TRY(read_checkpoint(r));
  for (r->arm = 0; r->arm < networks->info->n_arm; r->arm++)
    MILL_TRY(train_arm(r, x, lib));
  MILL_TRY(mill_mpi_agree(networks->mpi, networks->mpi->rank == 0 ? write_table(r) : MILL_OK));
done:
  for (int a = 0; r && a < MILL_MAX_ARM; a++)
    mill_train_state_clear(&r->state[a]);
  if (r)
    mill_free(r->row);
  return err;
}
