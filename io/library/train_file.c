/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/library/train_file.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/library/library_parts.h"
#include "src/ranks/same_on_ranks.h"
#include "src/system/file_roles.h"
#include "src/system/regular_file.h"

#define FORMAT  "starmill training"
#define TRAINED "starmill trained networks"
enum { VERSION = 1, N_COLUMN = 4, MAX_IDENTITY = 16384, MAX_PARAM = 1 << 30 };

/* ---- writing -------------------------------------------------------------------------------- */

static int write_state(const mill_h5_file *file, int i, const mill_train_state *s)
{
  char at[64];
  const size_t n = s->n_param, table[2] = {(size_t)s->n_epoch, N_COLUMN};
  const struct {
    const char *name, *description;
    const float *data;
  } array[] = {{"param", "weights and biases, layer after layer", s->param},
               {"mean", "Adam's means of the slopes", s->m},
               {"square", "Adam's means of the slopes' squares", s->v},
               {"best", "the parameters that are kept", s->best}};
  snprintf(at, sizeof at, "arm%d", i);
  MILL_CHECK(mill_h5_write_group(file, at));
  MILL_CHECK(mill_h5_write_attr_int(file, at, "n_epoch", s->n_epoch));
  MILL_CHECK(mill_h5_write_attr_int(file, at, "best_epoch", s->best_epoch));
  MILL_CHECK(mill_h5_write_attr_int(file, at, "n_wait", s->n_wait));
  MILL_CHECK(mill_h5_write_attr_int(file, at, "ended", s->ended));
  MILL_CHECK(mill_h5_write_attr_double(file, at, "n_step", (double)s->n_step));
  MILL_CHECK(mill_h5_write_attr_double(file, at, "rate", s->rate));
  MILL_CHECK(mill_h5_write_attr_double(file, at, "best_loss", s->best_loss));
  for (size_t k = 0; k < sizeof array / sizeof *array; k++) {
    snprintf(at, sizeof at, "arm%d/%s", i, array[k].name);
    MILL_CHECK(mill_h5_write(file, at, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, &n, array[k].data,
                             array[k].description));
  }
  snprintf(at, sizeof at, "arm%d/epochs", i);
  return mill_h5_write(file, at, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 2, table, s->epoch,
                       "loss, validation loss, learning rate, seconds");
}

static int begin_image(const char *path, const char *format, mill_h5_file *file)
{
  MILL_CHECK(mill_h5_open_image(NULL, 0, path, MILL_ERR_OUTPUT, file));
  return mill_h5_write_attr_text(file, "/", "format", format);
}

/* Write a file made in memory to a temporary name, and rename it to path. */
static int write_image(const char *path, const char *format, mill_h5_file *file)
{
  char end[4096], temporary[4200];
  MILL_OWNED void *image = NULL;
  size_t n_byte = 0;
  MILL_CHECK(mill_refuse_foreign(path, "--checkpoint", format));
  MILL_CHECK(mill_resolve_links(path, end, sizeof end));
  snprintf(temporary, sizeof temporary, "%s.tmp-%ld", end, (long)getpid());
  MILL_CHECK(mill_h5_get_image(file, &image, &n_byte));
  return mill_whole_file_write(end, temporary, 1, image, n_byte);
}

int mill_train_file_write(const char *path, const char *identity, int n_arm,
                          const mill_train_state *state)
{
  int n_begun = 0;
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  MILL_CHECK(begin_image(path, FORMAT, &file));
  MILL_CHECK(mill_h5_write_attr_int(&file, "/", "version", VERSION));
  MILL_CHECK(mill_h5_write_attr_text(&file, "/", "identity", identity));
  for (; n_begun < n_arm && state[n_begun].param; n_begun++)
    MILL_CHECK(write_state(&file, n_begun, &state[n_begun]));
  MILL_CHECK(mill_h5_write_attr_int(&file, "/", "n_arm", n_begun));
  return write_image(path, FORMAT, &file);
}

static int write_emulator(const mill_h5_file *file, int i_arm, const mill_emulator *e)
{
  char at[64];
  snprintf(at, sizeof at, "arm%d", i_arm);
  MILL_CHECK(mill_h5_write_group(file, at));
  MILL_CHECK(mill_h5_write_attr_int(file, at, "log_flux", e->log_flux));
  MILL_CHECK(mill_h5_write_attr_int(file, at, "n_layer", e->n_layer));
  for (int i = 0; i < e->n_layer; i++) {
    const size_t dim[2] = {(size_t)e->n_out[i], (size_t)e->n_in[i]};
    for (int is_bias = 0; is_bias < 2; is_bias++) {
      snprintf(at, sizeof at, "arm%d/%s%d", i_arm, is_bias ? "bias" : "weight", i);
      MILL_CHECK(mill_h5_write(file, at, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, is_bias ? 1 : 2, dim,
                               is_bias ? e->bias[i] : e->weight[i], "of a layer"));
    }
  }
  return MILL_OK;
}

int mill_trained_write(const char *path, const mill_library *lib, int n, int n_train,
                       const int *model)
{
  double scale[2][MILL_MAX_LABEL];
  const size_t n_model = (size_t)n, n_label = (size_t)lib->n_label;
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  for (int l = 0; l < lib->n_label; l++) {
    scale[0][l] = lib->label[l].mean;
    scale[1][l] = lib->label[l].std;
  }
  MILL_CHECK(begin_image(path, TRAINED, &file));
  MILL_CHECK(mill_h5_write_attr_int(&file, "/", "n_train", n_train));
  MILL_CHECK(mill_h5_write(&file, "models", H5T_STD_I32LE, H5T_NATIVE_INT, 1, &n_model, model,
                           "row of each model in the grid file; the first n_train were learned"));
  for (int k = 0; k < 2; k++)
    MILL_CHECK(mill_h5_write(&file, k ? "std" : "mean", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1,
                             &n_label, scale[k], "of the labels"));
  for (int a = 0; a < lib->n_arm; a++)
    MILL_CHECK(write_emulator(&file, a, &lib->arm[a].emulator));
  return write_image(path, TRAINED, &file);
}

/* ---- reading -------------------------------------------------------------------------------- */

#define REFUSED(file, format, ...)                                                                 \
  MILL_REFUSED(file, format "; remove it to begin again, or give --checkpoint another name",       \
               ##__VA_ARGS__)

/* Check that the file is a checkpoint, and read its identity, a text of data and settings. */
static int read_identity(const mill_h5_file *file, char *found)
{
  int version = 0;
  char format[64] = "";
  MILL_CHECK(mill_h5_read_attr_text(file, "/", "format", format, sizeof format));
  if (strcmp(format, FORMAT) != 0)
    return REFUSED(file, "not a checkpoint of a training");
  MILL_CHECK(mill_h5_read_attr_int(file, "/", "version", &version));
  if (version != VERSION)
    return REFUSED(file, "a checkpoint of version %d, this program reads %d", version, VERSION);
  return mill_h5_read_attr_text(file, "/", "identity", found, MAX_IDENTITY);
}

int mill_train_file_backend(const char *path, size_t size, char *out)
{
  static const char name[] = "\nbackend: "; /* a line of the identity */
  MILL_OWNED char *found = NULL;
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  struct stat status;
  out[0] = '\0';
  if (stat(path, &status) != 0)
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC(MAX_IDENTITY, &found));
  MILL_CHECK(mill_h5_open(path, MILL_ERR_INPUT, &file));
  MILL_CHECK(mill_h5_scan(&file));
  MILL_CHECK(read_identity(&file, found));
  const char *at = strstr(found, name);
  if (!at)
    return REFUSED(&file, "its backend is missing");
  at += sizeof name - 1;
  snprintf(out, size, "%.*s", (int)strcspn(at, "\n"), at);
  return MILL_OK;
}

/* Fail unless the checkpoint has this identity; the message has the first line that differs. */
static int check_identity(const mill_h5_file *file, const char *identity)
{
  MILL_OWNED char *found = NULL;
  MILL_CHECK(MILL_ALLOC(MAX_IDENTITY, &found));
  MILL_CHECK(read_identity(file, found));
  if (strcmp(found, identity) == 0)
    return MILL_OK;
  const char *ours = identity, *its = found; /* first line that differs */
  size_t n_ours = 0, n_its = 0;
  mill_first_difference(&ours, &n_ours, &its, &n_its);
  return REFUSED(file,
                 "the checkpoint of another training: it has '%.*s', this training has '%.*s'",
                 (int)(n_its < 80 ? n_its : 80), its, (int)(n_ours < 80 ? n_ours : 80), ours);
}

/* Read the scalars of an arm's training state, and refuse impossible ones. */
static int read_numbers(const mill_h5_file *file, const char *at, int n_epoch, mill_train_state *s)
{
  double n_step = 0; /* an integer; a double is exact up to 9e15 */
  MILL_CHECK(mill_h5_read_attr_int(file, at, "n_epoch", &s->n_epoch));
  MILL_CHECK(mill_h5_read_attr_int(file, at, "best_epoch", &s->best_epoch));
  MILL_CHECK(mill_h5_read_attr_int(file, at, "n_wait", &s->n_wait));
  MILL_CHECK(mill_h5_read_attr_int(file, at, "ended", &s->ended));
  MILL_CHECK(mill_h5_read_attr_double(file, at, "n_step", &n_step));
  MILL_CHECK(mill_h5_read_attr_double(file, at, "rate", &s->rate));
  MILL_CHECK(mill_h5_read_attr_double(file, at, "best_loss", &s->best_loss));
  if (s->n_epoch < 1 || s->n_epoch > n_epoch || (s->n_epoch == n_epoch && !s->ended) ||
      s->best_epoch < 0 || s->best_epoch > s->n_epoch || s->n_wait < 0 || !(n_step >= 1) ||
      !(n_step < 9e15) || !(s->rate >= 0) || !isfinite(s->rate) || isnan(s->best_loss))
    return REFUSED(file, "impossible numbers in %s (%d epochs of %d, %g steps)", at, s->n_epoch,
                   n_epoch, n_step);
  s->n_step = (int64_t)n_step;
  return MILL_OK;
}

/* Read the state of arm i's training: s->n_epoch epochs are done, of n_epoch in all. */
static int read_state(const mill_h5_file *file, int i, int n_epoch, mill_train_state *s)
{
  char at[64];
  size_t n = 0, table[2];
  const struct {
    const char *name;
    float **data;
  } array[] = {{"param", &s->param}, {"mean", &s->m}, {"square", &s->v}, {"best", &s->best}};
  snprintf(at, sizeof at, "arm%d", i);
  MILL_CHECK(read_numbers(file, at, n_epoch, s));
  snprintf(at, sizeof at, "arm%d/param", i);
  MILL_CHECK(mill_h5_shape(file, at, 1, &n));
  if (n < 1 || n > MAX_PARAM)
    return REFUSED(file, "%zu parameters in %s", n, at);
  s->n_param = n;
  for (size_t k = 0; k < sizeof array / sizeof *array; k++) {
    snprintf(at, sizeof at, "arm%d/%s", i, array[k].name);
    MILL_CHECK(mill_h5_read_new(file, at, H5T_NATIVE_FLOAT, 1, &n, array[k].data));
  }
  table[0] = (size_t)s->n_epoch;
  table[1] = N_COLUMN;
  MILL_CHECK(MILL_ALLOC(n_epoch, &s->epoch)); /* the training may go on to epoch n_epoch */
  snprintf(at, sizeof at, "arm%d/epochs", i);
  return mill_h5_read(file, at, H5T_NATIVE_DOUBLE, 2, table, s->epoch);
}

int mill_train_file_read(const char *path, const char *identity, int n_epoch, int *found,
                         mill_train_state *state)
{
  int err = MILL_OK, n_arm = 0;
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  struct stat status;
  _Static_assert(sizeof(mill_train_epoch) == N_COLUMN * sizeof(double), "a row of the table");
  *found = stat(path, &status) == 0;
  if (!*found)
    goto done;
  MILL_TRY(mill_h5_open(path, MILL_ERR_INPUT, &file));
  MILL_TRY(mill_h5_scan(&file));
  MILL_TRY(check_identity(&file, identity));
  MILL_TRY(mill_h5_read_attr_int(&file, "/", "n_arm", &n_arm));
  if (n_arm < 1 || n_arm > MILL_MAX_ARM)
    MILL_TRY(REFUSED(&file, "it has %d arms", n_arm));
  for (int i = 0; i < n_arm; i++)
    MILL_TRY(read_state(&file, i, n_epoch, &state[i]));
done:
  for (int i = 0; err != MILL_OK && i < MILL_MAX_ARM; i++)
    mill_train_state_clear(&state[i]);
  return err;
}
