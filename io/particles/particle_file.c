/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/particles/particle_file.h"

#include <string.h>
#include <unistd.h>

#include "io/hdf5/output_file.h"
#include "src/system/file_roles.h"
#include "src/system/regular_file.h"
#include "src/system/version.h"

#define FORMAT "starmill particles"

enum { MAX_RANK = 2 + MILL_PARTICLE_DIM };
static const char *const axis[] = {"X1", "X2", "X3"}; /* names of the datasets of points */

/* ---- reading ---- */

/* Read the points of an axis, which must be evenly spaced. */
static int read_axis(const mill_h5_file *file, const char *name, size_t n, double *low,
                     double *spacing)
{
  MILL_OWNED double *x = NULL;
  MILL_CHECK(mill_h5_read_new(file, name, H5T_NATIVE_DOUBLE, 1, &n, &x));
  if (n < 4)
    return MILL_ERROR(MILL_ERR_CONFIG, "%s: %s has %zu points: give 4 or more", file->path, name,
                      n);
  *low = x[0];
  *spacing = (x[n - 1] - x[0]) / (double)(n - 1);
  for (size_t i = 0; i < n; i++)
    if (!(fabs(x[i] - (*low + (double)i * *spacing)) <= 1e-6 * *spacing))
      return MILL_ERROR(
          MILL_ERR_CONFIG,
          "%s: %s [%zu] is %g, but even spacing needs %g: give points that ascend in even steps",
          file->path, name, i, x[i], *low + (double)i * *spacing);
  return MILL_OK;
}

int mill_particle_read_field(const char *path, mill_particle_setup *s)
{
  size_t dim[1 + MILL_PARTICLE_DIM] = {1}, n_value = 1; /* dim: times (or 1), points of each axis */
  MILL_OWNED double *value = NULL, *time = NULL, *coef = NULL;
  mill_particle_field *f = &s->field;
  MILL_AT_END(mill_h5_close) mill_h5_file file = {H5I_INVALID_HID, MILL_ERR_CONFIG, path};
  memset(f, 0, sizeof *f);
  MILL_CHECK(mill_h5_open(path, MILL_ERR_CONFIG, &file));
  MILL_CHECK(mill_h5_scan(&file));
  const int has_time = mill_h5_exists(&file, "TIME"), n_dim = s->n_dim + (has_time ? 1 : 0);
  size_t *u_dim = has_time ? dim : dim + 1; /* shape [n_dim] of U: without TIME it has no dim[0] */
  MILL_CHECK(mill_h5_shape(&file, "U", n_dim, u_dim));
  f->n_dim = s->n_dim;
  f->n_time = (int)dim[0];
  for (int a = 0; a < MILL_PARTICLE_DIM; a++) {
    f->n_node[a] = a < s->n_dim ? (int)dim[1 + a] : 1;
    if (a >= s->n_dim)
      continue;
    MILL_CHECK(read_axis(&file, axis[a], dim[1 + a], &f->low[a], &f->spacing[a]));
    const double length = s->high[a] - s->low[a]; /* a period's points leave out its end */
    f->periodic[a] = s->boundary[a] == MILL_PERIODIC &&
                     fabs(f->n_node[a] * f->spacing[a] - length) < 1e-6 * length;
  }
  for (int a = 0; a <= s->n_dim; a++)
    n_value *= dim[a];
  if (n_value < 1 || n_value > (size_t)1 << 28)
    return MILL_ERROR(MILL_ERR_CONFIG, "%s: U has %zu values: give 1 to %d", path, n_value,
                      1 << 28);
  if (has_time)
    MILL_CHECK(mill_h5_read_new(&file, "TIME", H5T_NATIVE_DOUBLE, 1, dim, &time));
  for (size_t i = 0; has_time && i < dim[0]; i++)
    if (!isfinite(time[i]) || (i > 0 && time[i] <= time[i - 1]))
      return MILL_ERROR(MILL_ERR_CONFIG, "%s: TIME [%zu] is %g: give times that ascend", path, i,
                        time[i]);
  MILL_CHECK(mill_h5_read_new(&file, "U", H5T_NATIVE_DOUBLE, n_dim, u_dim, &value));
  MILL_CHECK(MILL_ALLOC(mill_particle_n_coef(f), &coef));
  const int code = mill_particle_field_fit(f, value, coef);
  if (code == MILL_ERR_CONFIG)
    return MILL_ERROR(code, "%s: %s", path, mill_error_message());
  MILL_CHECK(code);
  f->time = time;
  f->coef = coef;
  time = coef = NULL;
  return MILL_OK;
}

void mill_particle_free_field(mill_particle_field *f)
{
  MILL_FREE(f->time, f->coef);
  f->time = f->coef = NULL;
}

int mill_particle_read_samples(const char *path, const mill_particle_setup *s, double **sample)
{
  const size_t dim[] = {(size_t)s->n_particle, (size_t)s->n_dim};
  MILL_AT_END(mill_h5_close) mill_h5_file file = {H5I_INVALID_HID, MILL_ERR_CONFIG, path};
  MILL_OWNED double *read = NULL;
  *sample = NULL;
  MILL_CHECK(mill_h5_open(path, MILL_ERR_CONFIG, &file));
  MILL_CHECK(mill_h5_scan(&file));
  MILL_CHECK(mill_h5_read_new(&file, "X", H5T_NATIVE_DOUBLE, 2, dim, &read));
  for (size_t i = 0; i < dim[0] * dim[1]; i++) {
    const size_t a = i % dim[1];
    const double x = read[i];
    if (!(fabs(x) <= MILL_PARTICLE_FAR) ||
        (s->boundary[a] != MILL_OPEN && (x < s->low[a] || x > s->high[a])))
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "%s: X [%zu][%zu] is %g: give numbers within the ends of their axis", path,
                        i / dim[1], a, x);
  }
  return MILL_GIVE(&read, sample);
}

/* ---- writing ---- */

enum { DENSITY, BOUND, MOMENT, BAD_STEP, POSITION, STATUS, N_DATASET };

static const struct {
  const char *name, *description;
  int rank; /* number of dimensions; DENSITY: without its axes X1, X2, X3 */
} dataset[N_DATASET] = {
    {"DENSITY", "density at TIME on the points X1, X2, X3; its integral is 1", 2},
    {"DENSITY_BOUND", "upper bound of the error that binning makes in DENSITY", 2},
    {"MOMENTS",
     "after each step: fraction of particles left, mean on each axis, covariance xx xy xz yy yz zz",
     3},
    {"BAD_STEP", "first step that lost a particle because steps are too long; -1: none", 1},
    {"POSITION", "final positions of the particles; NaN if absorbed", 3},
    {"STATUS", "0 not yet done, 1 done, 2 the step is too long (BAD_STEP)", 1}};

struct mill_particle_file {
  hid_t file;
  int fd;
  mill_output_mark mark; /* the file's first bytes */
  mill_lock lock;
  int rank[N_DATASET]; /* number of dimensions; 0: not wanted */
  hsize_t dim[N_DATASET][MAX_RANK];
  char path[MILL_MAX_PATH];
};

enum { IN_MEMORY, IN_FILE }; /* of type_of */
static hid_t type_of(int i, int in_file)
{
  if (i == STATUS)
    return in_file ? H5T_STD_U8LE : H5T_NATIVE_UCHAR;
  if (i == BAD_STEP)
    return in_file ? H5T_STD_I32LE : H5T_NATIVE_INT;
  return in_file ? H5T_IEEE_F64LE : H5T_NATIVE_DOUBLE;
}

/* Set the shapes of the datasets; rank 0: the file will lack the dataset. */
static void lay_out(const mill_particle_config *c, mill_particle_file *f)
{
  const mill_particle_setup *s = &c->setup;
  for (int i = 0; i < N_DATASET; i++) {
    f->rank[i] = i == POSITION && !c->positions ? 0 : dataset[i].rank;
    f->dim[i][0] = (hsize_t)c->n_problem;
  }
  f->dim[DENSITY][1] = f->dim[BOUND][1] = (hsize_t)s->n_record;
  for (int a = 0; a < s->n_dim; a++) /* DENSITY has axes after the problem and TIME */
    f->dim[DENSITY][f->rank[DENSITY]++] = (hsize_t)s->n_grid[a];
  f->dim[MOMENT][1] = (hsize_t)s->n_step + 1;
  f->dim[MOMENT][2] = MILL_PARTICLE_MOMENTS;
  f->dim[POSITION][1] = (hsize_t)s->n_particle;
  f->dim[POSITION][2] = (hsize_t)s->n_dim;
}

/* Write a small dataset [n] of numbers. */
static int write_numbers(hid_t file, const char *path, const char *name, hsize_t n,
                         const double *value, const char *description)
{
  MILL_CHECK(mill_output_dataset(file, path, name, H5T_IEEE_F64LE, 1, &n, "", description));
  return mill_output_write_whole(file, path, name, H5T_NATIVE_DOUBLE, value);
}

/* Write what all problems share: identity, times, and points of the density. */
static int write_frame(hid_t file, const char *path, const char *identity,
                       const mill_particle_config *c)
{
  char program[128];
  double x[MILL_PARTICLE_MAX_GRID];
  const mill_particle_setup *s = &c->setup;
  snprintf(program, sizeof program, "starmill %s (%s)", mill_version(), mill_version_revision());
  MILL_CHECK(mill_h5_write_attr_text(MILL_OUTPUT(file, path), ".", "FORMAT", FORMAT));
  MILL_CHECK(mill_h5_write_attr_text(MILL_OUTPUT(file, path), ".", "PROGRAM", program));
  MILL_CHECK(
      mill_output_text(file, path, "IDENTITY", identity, "all that decides about the numbers"));
  for (int i = 0; i < s->n_record; i++)
    x[i] = s->start_time + s->record[i] * s->step;
  MILL_CHECK(write_numbers(file, path, "TIME", (hsize_t)s->n_record, x, "of DENSITY"));
  for (int a = 0; a < s->n_dim; a++) {
    for (int i = 0; i < s->n_grid[a]; i++)
      x[i] = s->grid_low[a] + /* a single point is at grid_low */
             (s->n_grid[a] > 1 ? i * (s->grid_high[a] - s->grid_low[a]) / (s->n_grid[a] - 1) : 0);
    MILL_CHECK(write_numbers(file, path, axis[a], (hsize_t)s->n_grid[a], x, "points of DENSITY"));
  }
  return MILL_OK;
}

/* Create the file under a temporary name, and rename it. */
static int make(const mill_particle_file *f, const char *identity, const mill_particle_config *c)
{
  int err = MILL_OK;
  char temporary[MILL_MAX_PATH + 128], job[64];
  hid_t file = H5I_INVALID_HID;
  int64_t n_byte = 65536 + 8 * c->n_problem; /* estimated size of the file */
  for (int i = 0; i < N_DATASET; i++) {
    int64_t n = f->rank[i] > 0 ? (int64_t)H5Tget_size(type_of(i, IN_FILE)) : 0;
    for (int k = 0; k < f->rank[i]; k++)
      n *= (int64_t)f->dim[i][k];
    n_byte += n;
  }
  mill_lock_job(job, sizeof job);
  snprintf(temporary, sizeof temporary, "%s.tmp-%s", f->path, job);
  MILL_TRY(mill_output_create(temporary, n_byte, &file));
  err = write_frame(file, temporary, identity, c);
  for (int i = 0; i < N_DATASET && err == MILL_OK; i++)
    if (f->rank[i] > 0)
      err = mill_output_dataset(file, temporary, dataset[i].name, type_of(i, IN_FILE), f->rank[i],
                                f->dim[i], "", dataset[i].description);
  MILL_TRY(mill_output_end(temporary, &file, err));
  MILL_TRY(mill_output_rename(temporary, f->path));
done:
  if (err != MILL_OK)
    unlink(temporary);
  return err;
}

/* Open an existing file, which must have this identity, and read status [n_problem]. */
static int reopen(mill_particle_file *f, const char *identity, int64_t n_problem,
                  unsigned char *status)
{
  MILL_OWNED char *made = NULL;
  MILL_CHECK(mill_h5_check_output(f->path));
  if (mill_output_open_existing(f->path, &f->file) != MILL_OK)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s; give another --output, or --overwrite",
                      mill_error_message());
  mill_h5_id_close(&f->file); /* opened read-only, as a check */
  MILL_CHECK(mill_output_open(f->path, H5F_ACC_RDWR, &f->file));
  MILL_CHECK(mill_output_read_text(f->file, f->path, "IDENTITY", &made));
  if (strcmp(made, identity) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s exists and was made with another configuration, potential or samples: "
                      "give another --output, or --overwrite",
                      f->path);
  return mill_output_read_whole(f->file, f->path, "STATUS", H5T_NATIVE_UCHAR, n_problem, status);
}

int mill_particle_file_open(const char *path, int overwrite, const char *identity,
                            const mill_particle_config *c, unsigned char *status,
                            mill_particle_file **out)
{
  int err = MILL_OK;
  mill_particle_file *f = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &f));
  f->file = H5I_INVALID_HID;
  f->fd = -1;
  MILL_TRY(mill_resolve_links(path, f->path, sizeof f->path - 64)); /* 64: for endings */
  lay_out(c, f);
  MILL_TRY(mill_lock_take(f->path, &f->lock));
  mill_lock_remove_leftovers(&f->lock, f->path);
  if (overwrite)
    MILL_TRY(mill_refuse_foreign(f->path, "--output", FORMAT));
  const int is_there = access(f->path, F_OK) == 0;
  err = is_there ? reopen(f, identity, c->n_problem, status) : MILL_OK;
  /* an unfinished file of this identity is continued, even with --overwrite */
  const int is_unfinished =
      is_there && err == MILL_OK && memchr(status, MILL_PARTICLES_WAIT, (size_t)c->n_problem);
  if (!is_there || (overwrite && !is_unfinished)) {
    err = mill_output_end(path, &f->file, MILL_OK); /* close; forget if reopen failed */
    MILL_STEP(make(f, identity, c));
    MILL_STEP(reopen(f, identity, c->n_problem, status));
  }
  MILL_STEP(mill_output_hold(f->path, &f->fd));
  f->mark.n = pread(f->fd, f->mark.bytes, sizeof f->mark.bytes, 0); /* the file's first bytes */
  MILL_STEP(MILL_GIVE(&f, out));
done:
  (void)mill_particle_file_close(f, err);
  return err;
}

/* Write the value of one problem to its row of dataset i. */
static int write_row(const mill_particle_file *f, int i, int64_t i_problem, const void *value)
{
  hsize_t start[MAX_RANK] = {(hsize_t)i_problem}, count[MAX_RANK] = {1};
  for (int k = 1; k < f->rank[i]; k++)
    count[k] = f->dim[i][k];
  MILL_AT_END(mill_h5_id_close)
  const hid_t set = H5Dopen2(f->file, dataset[i].name, H5P_DEFAULT),
              space = H5Screate_simple(f->rank[i], f->dim[i], NULL),
              memory = H5Screate_simple(f->rank[i], count, NULL);
  if (set < 0 || space < 0 || memory < 0 ||
      H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
      H5Dwrite(set, type_of(i, IN_MEMORY), memory, space, H5P_DEFAULT, value) < 0)
    return MILL_OUTPUT_ERROR(f->path, dataset[i].name);
  return MILL_OK;
}

int mill_particle_file_write(mill_particle_file *f, int64_t i_problem,
                             const mill_particle_result *r)
{
  const void *value[STATUS] = {r->density, r->bound, r->moment, &r->bad_step, r->position};
  MILL_CHECK(mill_lock_keep(&f->lock));
  MILL_CHECK(mill_output_still_there(f->path, f->fd, &f->mark));
  for (int i = 0; i < STATUS; i++)
    if (f->rank[i] > 0)
      MILL_CHECK(write_row(f, i, i_problem, value[i]));
  return MILL_OK;
}

/* Wait until all that was written is on the disk. */
static int sync_file(const mill_particle_file *f)
{
  if (H5Fflush(f->file, H5F_SCOPE_LOCAL) < 0)
    return MILL_OUTPUT_ERROR(f->path, "to the disk");
  return mill_output_sync(f->path, f->fd);
}

int mill_particle_file_mark(mill_particle_file *f, const unsigned char *status)
{
  MILL_CHECK(sync_file(f));
  MILL_CHECK(mill_lock_keep(&f->lock));
  MILL_CHECK(mill_output_still_there(f->path, f->fd, &f->mark));
  MILL_CHECK(mill_output_write_whole(f->file, f->path, "STATUS", H5T_NATIVE_UCHAR, status));
  return sync_file(f);
}

int mill_particle_file_close(mill_particle_file *f, int err)
{
  if (!f)
    return err;
  err = mill_output_end(f->path, &f->file, err);
  mill_descriptor_close(&f->fd);
  mill_lock_release(&f->lock);
  mill_free(f);
  return err;
}
