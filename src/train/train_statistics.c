/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/train/train_statistics.h"

#include <string.h>

#include <cblas.h>

/* Drop components below this fraction of the first one's variance: they are rounding errors. */
#define LEAST_PART 1e-13

struct mill_train_statistics {
  const mill_train_ops *ops;
  int n_pix, n_room;
  /* n: number of centred spectra; n_row: rows with the covariance of these spectra */
  int64_t n;
  int n_row;
  double *mean, *square; /* [n_pix] square: sum of (y - mean)^2 */
  double *row;           /* [n_room][n_pix]: n_row rows, then n_raw spectra that are not centred */
  int n_raw;
};

/* ---- memory ---- */

int mill_train_statistics_create(const mill_train_ops *ops, int n_pix, int n_room,
                                 mill_train_statistics **out)
{
  MILL_AT_END(mill_train_statistics_destroy_at) mill_train_statistics *s = NULL;
  *out = NULL;
  MILL_CHECK(MILL_ALLOC(1, &s));
  s->ops = ops;
  s->n_pix = n_pix;
  s->n_room = n_room;
  MILL_CHECK(MILL_ALLOC(n_pix, &s->mean));
  MILL_CHECK(MILL_ALLOC(n_pix, &s->square));
  MILL_CHECK(mill_alloc_raw((size_t)n_room * (size_t)n_pix, sizeof *s->row, (void **)&s->row));
  return MILL_GIVE(&s, out);
}

void mill_train_statistics_destroy(mill_train_statistics *s)
{
  if (!s)
    return;
  MILL_FREE(s->mean, s->square, s->row, s);
}

void mill_train_components_clear(mill_train_components *c)
{
  if (!c)
    return;
  MILL_FREE(c->mean, c->spread, c->pattern, c->variance);
  memset(c, 0, sizeof *c);
}

/* ---- room ---- */

/* Replace the rows by the leading principal directions of their covariance. */
static int condense(mill_train_statistics *s)
{
  /* the rows of two ranks, and a row for the change of the mean, fit into the room */
  const int n = s->n_room / 2 - 1;
  const size_t n_pix = (size_t)s->n_pix;
  MILL_OWNED double *rows = NULL, *value = NULL; /* value: eigenvalues, not needed here */
  if (s->n_row <= n)
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC(n, &value));
  MILL_CHECK(MILL_ALLOC((size_t)n * n_pix, &rows));
  MILL_CHECK(s->ops->directions(s->n_row, s->n_pix, s->row, n, value, rows));
  memcpy(s->row, rows, (size_t)n * n_pix * sizeof *rows);
  s->n_row = n;
  return MILL_OK;
}

/* ---- spectra that come in ---- */

/* Combine the means and sums of squares of s with those of n_other spectra.  The caller has already
 * added these spectra to s->row, less their own mean.  Unless they are the first spectra, add a row
 * for the difference of the means, which contributes to the covariance. */
static void move_mean(mill_train_statistics *s, int64_t n_other, const double *mean_other,
                      const double *square_other)
{
  const double n_old = (double)s->n, n_new = (double)n_other, n_all = n_old + n_new;
  double *row = s->row + (size_t)s->n_row * (size_t)s->n_pix;
  const double weight = sqrt(n_old * n_new / n_all);
  for (int p = 0; p < s->n_pix; p++) {
    const double d = mean_other[p] - s->mean[p];
    s->mean[p] += d * n_new / n_all;
    s->square[p] += square_other[p] + d * d * n_old * n_new / n_all;
    if (s->n > 0)
      row[p] = weight * d;
  }
  s->n_row += s->n > 0;
  s->n += n_other;
}

/* Subtract the mean of the n_raw spectra, and make them rows of the statistics. */
static int centre(mill_train_statistics *s)
{
  const size_t n_pix = (size_t)s->n_pix, n = (size_t)s->n_raw;
  double *raw = s->row + (size_t)s->n_row * n_pix;
  MILL_OWNED double *square = NULL, *mean = NULL;
  if (n == 0)
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC(n_pix, &mean));
  MILL_CHECK(MILL_ALLOC(n_pix, &square));
  for (size_t i = 0; i < n; i++)
    for (size_t p = 0; p < n_pix; p++)
      mean[p] += raw[i * n_pix + p];
  for (size_t p = 0; p < n_pix; p++)
    mean[p] /= (double)n;
  for (size_t i = 0; i < n; i++)
    for (size_t p = 0; p < n_pix; p++) {
      const double d = raw[i * n_pix + p] -= mean[p];
      square[p] += d * d;
    }
  s->n_row += s->n_raw;
  s->n_raw = 0;
  move_mean(s, (int64_t)n, mean, square);
  return MILL_OK;
}

int mill_train_statistics_add(mill_train_statistics *s, int n, const float *y)
{
  const size_t n_pix = (size_t)s->n_pix;
  for (int i = 0; i < n; i++, y += n_pix) {
    /* keep a row free for a change of the mean */
    if (s->n_row + s->n_raw + (s->n > 0) >= s->n_room) {
      MILL_CHECK(centre(s));
      MILL_CHECK(condense(s));
    }
    double *row = s->row + (size_t)(s->n_row + s->n_raw++) * n_pix;
    for (size_t p = 0; p < n_pix; p++)
      row[p] = (double)y[p];
  }
  return MILL_OK;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Rank 0: merge another rank's statistics into s.  pixel [2][n_pix]: work space. */
static int receive(const mill_mpi *mpi, int from, double *pixel, mill_train_statistics *s)
{
  const size_t n_pix = (size_t)s->n_pix;
  int64_t size[2]; /* as in send: numbers of spectra and of rows */
  int code = MILL_OK;
  MILL_CHECK_MPI(MPI_Recv(size, 2, MPI_INT64_T, from, 0, mpi->comm, MPI_STATUS_IGNORE));
  if (s->n_row + size[1] + 1 > s->n_room)
    code = condense(s);
  MILL_CHECK_MPI(MPI_Send(&code, 1, MPI_INT, from, 1, mpi->comm)); /* may `from` send? */
  if (code != MILL_OK || size[0] == 0)
    return code;
  MILL_CHECK_MPI(MPI_Recv(pixel, 2 * s->n_pix, MPI_DOUBLE, from, 2, mpi->comm, MPI_STATUS_IGNORE));
  for (int64_t i = 0; i < size[1]; i++, s->n_row++)
    MILL_CHECK_MPI(MPI_Recv(s->row + (size_t)s->n_row * n_pix, s->n_pix, MPI_DOUBLE, from, 3,
                            mpi->comm, MPI_STATUS_IGNORE));
  move_mean(s, size[0], pixel, pixel + n_pix);
  return MILL_OK;
}

/* Send this rank's statistics to rank 0 once rank 0 has room.  pixel [2][n_pix]: work space. */
static int send(const mill_mpi *mpi, double *pixel, const mill_train_statistics *s)
{
  int answer = MILL_OK;
  const size_t n_pix = (size_t)s->n_pix;
  const int64_t size[2] = {s->n, s->n_row}; /* numbers of spectra and of rows */
  memcpy(pixel, s->mean, n_pix * sizeof *pixel);
  memcpy(pixel + n_pix, s->square, n_pix * sizeof *pixel);
  MILL_CHECK_MPI(MPI_Send(size, 2, MPI_INT64_T, 0, 0, mpi->comm));
  MILL_CHECK_MPI(MPI_Recv(&answer, 1, MPI_INT, 0, 1, mpi->comm, MPI_STATUS_IGNORE));
  if (answer != MILL_OK || s->n == 0)
    return MILL_OK; /* rank 0 reports its own failure */
  MILL_CHECK_MPI(MPI_Send(pixel, 2 * s->n_pix, MPI_DOUBLE, 0, 2, mpi->comm));
  for (int i = 0; i < s->n_row; i++)
    MILL_CHECK_MPI(MPI_Send(s->row + (size_t)i * n_pix, s->n_pix, MPI_DOUBLE, 0, 3, mpi->comm));
  return MILL_OK;
}

int mill_train_statistics_join(const mill_mpi *mpi, mill_train_statistics *s)
{
  MILL_OWNED double *pixel = NULL; /* work space of send and receive */
  int err = MILL_ALLOC(2 * (size_t)s->n_pix, &pixel);
  MILL_STEP(centre(s));
  if (err == MILL_OK && mpi->rank > 0)
    err = condense(s); /* leave as many rows as rank 0 has room for */
  MILL_TRY(mill_mpi_agree(mpi, err));
  for (int from = 1; from < mpi->size; from++) {
    if (mpi->rank == 0)
      err = receive(mpi, from, pixel, s);
    else if (mpi->rank == from)
      err = send(mpi, pixel, s);
    MILL_TRY(mill_mpi_agree(mpi, err));
  }
done:
  return err;
}

/* ---- components ------------------------------------------------------------------------------ */

int mill_train_statistics_pixels(mill_train_statistics *s, mill_train_components *out)
{
  const size_t n_pix = (size_t)s->n_pix;
  memset(out, 0, sizeof *out);
  MILL_CHECK(centre(s));
  out->n_pix = s->n_pix;
  MILL_CHECK(MILL_ALLOC(n_pix, &out->mean));
  MILL_CHECK(MILL_ALLOC(n_pix, &out->spread));
  memcpy(out->mean, s->mean, n_pix * sizeof *out->mean);
  for (size_t p = 0; p < n_pix; p++)
    out->spread[p] = s->n > 0 ? sqrt(s->square[p] / (double)s->n) : 0;
  return MILL_OK;
}

/* Return how many of n components to keep, from their ascending variances, value [n].  Keep the
 * largest until at most rest * total of the variance is left out; rest 0: keep all.  Components
 * below LEAST_PART are never kept. */
static int n_kept(int n, const double *value, double total, double rest)
{
  double left = total;
  int k = 0;
  for (; k < n && value[n - 1 - k] > LEAST_PART * value[n - 1]; k++) {
    if (rest > 0 && left <= rest * total)
      break;
    left -= value[n - 1 - k];
  }
  return k;
}

/* Patterns are the principal directions of the scaled rows, by falling variance. */
int mill_train_statistics_components(mill_train_statistics *s, const double *scale, int n_component,
                                     double rest, mill_train_components *out)
{
  const size_t n_pix = (size_t)s->n_pix, n_row = (size_t)s->n_row;
  MILL_OWNED double *row = NULL, *value = NULL, *scaled = NULL;
  const int most = s->n < s->n_row ? (int)s->n : s->n_row;
  const double factor = 1 / sqrt((double)s->n); /* makes the scores' mean square 1 */
  if (n_component < 1 || n_component >= most)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%d principal components of %lld spectra, expected 1 to %d: use fewer components, or "
        "more spectra",
        n_component, (long long)s->n, most - 1);
  MILL_CHECK(mill_alloc_raw(n_row * n_pix, sizeof *scaled, (void **)&scaled));
  MILL_CHECK(MILL_ALLOC(n_component, &value));
  MILL_CHECK(MILL_ALLOC((size_t)n_component * n_pix, &row));
  for (size_t i = 0; i < n_row; i++)
    for (size_t p = 0; p < n_pix; p++)
      scaled[i * n_pix + p] = scale[p] * s->row[i * n_pix + p];
  out->total = 0;
  for (size_t p = 0; p < n_pix; p++)
    out->total += scale[p] * scale[p] * s->square[p] / (double)s->n;
  if (!(out->total > 0) || !isfinite(out->total))
    return MILL_ERROR(MILL_ERR_INPUT,
                      "the spectra are all equal, or not finite: their variance is %g", out->total);
  MILL_CHECK(s->ops->directions(s->n_row, s->n_pix, scaled, n_component, value, row));
  for (int k = 0; k < n_component; k++)
    value[k] /= (double)s->n;
  out->n_component = n_kept(n_component, value, out->total, rest);
  MILL_CHECK(MILL_ALLOC((size_t)out->n_component * n_pix, &out->pattern));
  MILL_CHECK(MILL_ALLOC(out->n_component, &out->variance));
  for (int k = 0; k < out->n_component; k++) {
    const int from = n_component - 1 - k; /* variances ascend in value */
    out->variance[k] = value[from];
    const double *direction = row + (size_t)from * n_pix;
    double *pattern = out->pattern + (size_t)k * n_pix, largest = 0;
    for (size_t p = 0; p < n_pix; p++)
      largest = fabs(direction[p]) > fabs(largest) ? direction[p] : largest;
    for (size_t p = 0; p < n_pix; p++) /* in the spectra's units, the largest element positive */
      pattern[p] = direction[p] * (largest < 0 ? -factor : factor) / scale[p];
  }
  return MILL_OK;
}

int mill_train_components_share(const mill_mpi *mpi, mill_train_components *c)
{
  int code = MILL_OK, size[2] = {c->n_pix, c->n_component};
  MILL_CHECK_MPI(MPI_Bcast(size, 2, MPI_INT, 0, mpi->comm));
  const size_t n_pix = (size_t)size[0], n = (size_t)size[1];
  double **const array[] = {&c->mean, &c->spread, &c->variance, &c->pattern};
  const size_t length[] = {n_pix, n_pix, n, n * n_pix};
  if (mpi->rank != 0) {
    *c = (mill_train_components){.n_pix = size[0], .n_component = size[1]};
    for (int i = 0; i < 4 && code == MILL_OK; i++)
      code = MILL_ALLOC(length[i], array[i]);
  }
  MILL_CHECK(mill_mpi_agree(mpi, code));
  MILL_CHECK_MPI(MPI_Bcast(&c->total, 1, MPI_DOUBLE, 0, mpi->comm));
  for (int i = 0; i < 3; i++)
    MILL_CHECK_MPI(MPI_Bcast(*array[i], (int)length[i], MPI_DOUBLE, 0, mpi->comm));
  for (size_t k = 0; k < n; k++) /* one by one: a count of MPI is an int */
    MILL_CHECK_MPI(MPI_Bcast(c->pattern + k * n_pix, size[0], MPI_DOUBLE, 0, mpi->comm));
  return MILL_OK;
}

int mill_train_components_scores(const mill_train_components *c, const double *scale, int n,
                                 const float *y, double *z, double *rest)
{
  const size_t n_pix = (size_t)c->n_pix, n_component = (size_t)c->n_component;
  MILL_OWNED double *x = NULL;
  MILL_CHECK(mill_alloc_raw((size_t)n * n_pix, sizeof *x, (void **)&x));
  for (size_t i = 0; i < (size_t)n; i++) {
    rest[i] = 0;
    for (size_t p = 0; p < n_pix; p++) {
      const double u = scale[p] * ((double)y[i * n_pix + p] - c->mean[p]);
      rest[i] += u * u;
      x[i * n_pix + p] = u * scale[p];
    }
  }
  /* scaled patterns are orthogonal, so z_k = pattern_k . scale^2 (y - mean) / variance_k */
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, c->n_component, c->n_pix, 1, x, c->n_pix,
              c->pattern, c->n_pix, 0, z, c->n_component);
  for (size_t i = 0; i < (size_t)n; i++)
    for (size_t k = 0; k < n_component; k++) {
      double *score = &z[i * n_component + k];
      *score /= c->variance[k];
      rest[i] -= *score * *score * c->variance[k];
    }
  for (int i = 0; i < n; i++)
    rest[i] = fmax(rest[i], 0);
  return MILL_OK;
}
