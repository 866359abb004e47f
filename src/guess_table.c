#include "src/guess_table.h"

#include <math.h>
#include <string.h>

#include "kernels/continuum.h"
#include "kernels/error.h"
#include "kernels/hull.h"
#include "kernels/linalg.h"
#include "kernels/rotation.h"
#include "src/rbf.h"
#include "src/spline_grid.h"

int mill_emulator_eval(const mill_library *lib, int i_arm, const double *label, double *flux)
{
  int err = MILL_OK;
  const mill_arm *arm = &lib->arm[i_arm];
  const mill_emulator *e = &arm->emulator;
  double *x = NULL, *y = NULL;
  MILL_TRY(MILL_ALLOC(MILL_MAX_WIDTH, &x));
  MILL_TRY(MILL_ALLOC(MILL_MAX_WIDTH, &y));
  for (int l = 0; l < lib->n_label; l++)
    x[l] = mill_label_map(&lib->label[l], label[l]);
  if (e->kind != MILL_EMULATOR_MLP) {
    if (e->kind == MILL_EMULATOR_GRID)
      mill_spline_grid_eval(&e->grid, x, y);
    else
      mill_rbf_eval(&e->rbf, x, y);
    double *swap = x;
    x = y;
    y = swap;
  }
  for (int l = 0; l < e->n_layer; l++) {
    const int last = l == e->n_layer - 1;
    double *out = last ? flux : y;
    for (int i = 0; i < e->n_out[l]; i++) {
      const float *w = e->weight[l] + (size_t)i * (size_t)e->n_in[l];
      double z = (double)e->bias[l][i];
      for (int k = 0; k < e->n_in[l]; k++)
        z += (double)w[k] * x[k];
      out[i] = last ? z : z / (1.0 + exp(-z));
    }
    double *swap = x;
    x = y;
    y = swap;
  }
  if (e->log_flux)
    for (int i = 0; i < arm->n_pix; i++)
      flux[i] = exp(fmin(fmax(flux[i], -300.0), 300.0));
done:
  mill_free(x);
  mill_free(y);
  return err;
}

void mill_guess_table_clear(mill_guess_table *table)
{
  for (int a = 0; a < MILL_MAX_ARM; a++) {
    mill_free(table->arm[a].mean);
    mill_free(table->arm[a].count);
  }
  memset(table, 0, sizeof *table);
}

static long bin_of(double ln_wave, double step)
{
  return (long)floor(ln_wave / step);
}

/** Rotate flux [n] into out; zero beyond the grid, where no bin of the data lies. */
static void rotate(int kind, int n, double ln_step, double vsini_km_s, const double *flux,
                   float *out)
{
  const double r_pix = vsini_km_s / (MILL_C_KM_S * ln_step);
  int half = mill_rotation_half_width(kind, r_pix);
  if (half > MILL_MAX_ROTATION)
    half = MILL_MAX_ROTATION;
  double kernel[MILL_MAX_ROTATION + 1], slope;
  for (int k = 0; k <= half; k++)
    mill_rotation_weight(kind, r_pix, k, &kernel[k], &slope);
  for (int i = 0; i < n; i++) {
    double sum = kernel[0] * flux[i];
    for (int k = 1; k <= half; k++)
      sum += kernel[k] * ((i >= k ? flux[i - k] : 0.0) + (i + k < n ? flux[i + k] : 0.0));
    out[i] = (float)sum;
  }
}

/** Put the means of template t over the bins of its arm into place. */
static void bin_template(mill_guess_arm *bins, const mill_arm *arm, double step, int t,
                         const float *flux)
{
  double *mean = bins->mean +
                 (size_t)(t / MILL_GUESS_LANES) * (size_t)bins->n_bin * MILL_GUESS_LANES +
                 t % MILL_GUESS_LANES;
  for (int i = 0; i < arm->n_pix; i++) {
    const long b = bin_of(arm->ln_wave0 + (double)i * arm->ln_step, step) - bins->bin0;
    mean[b * MILL_GUESS_LANES] += (double)flux[i];
  }
  for (int b = 0; b < bins->n_bin; b++)
    if (bins->count[b] > 0)
      mean[b * MILL_GUESS_LANES] /= (double)bins->count[b];
}

int mill_guess_table_create(const mill_library *lib, const mill_fit_settings *set,
                            mill_guess_table *table)
{
  int err = MILL_OK;
  double *flux = NULL;
  float *rotated = NULL;
  memset(table, 0, sizeof *table);
  table->n_templ = lib->n_guess * lib->n_guess_vsini;
  if (table->n_templ < 1)
    MILL_FAIL(MILL_ERR_LIBRARY, "%s has no templates for the initial guess; import it again",
              lib->path);
  const double step = table->ln_step = set->guess_vel_step_km_s / MILL_C_KM_S;
  const double fastest = fmax(fabs(set->min_vel_km_s), fabs(set->max_vel_km_s));
  table->half = (int)ceil(atanh(fastest / MILL_C_KM_S) / table->ln_step);
  const int n_group = (table->n_templ + MILL_GUESS_LANES - 1) / MILL_GUESS_LANES;
  for (int a = 0; a < lib->n_arm; a++) {
    const mill_arm *arm = &lib->arm[a];
    const int n = arm->n_pix;
    mill_guess_arm *bins = &table->arm[a];
    bins->bin0 = bin_of(arm->ln_wave0, step);
    bins->n_bin =
        (int)(bin_of(arm->ln_wave0 + (double)(n - 1) * arm->ln_step, step) - bins->bin0) + 1;
    mill_free(flux);
    mill_free(rotated);
    flux = NULL;
    rotated = NULL;
    MILL_TRY(MILL_ALLOC(n, &flux));
    MILL_TRY(MILL_ALLOC(n, &rotated));
    MILL_TRY(MILL_ALLOC(bins->n_bin, &bins->count));
    MILL_TRY(MILL_ALLOC((size_t)n_group * (size_t)bins->n_bin * MILL_GUESS_LANES, &bins->mean));
    for (int i = 0; i < n; i++)
      bins->count[bin_of(arm->ln_wave0 + (double)i * arm->ln_step, step) - bins->bin0]++;
    for (int g = 0; g < lib->n_guess; g++) {
      MILL_TRY(
          mill_emulator_eval(lib, a, lib->guess_label + (size_t)g * (size_t)lib->n_label, flux));
      for (int v = 0; v < lib->n_guess_vsini; v++) {
        rotate(set->rotation, n, arm->ln_step, lib->guess_vsini_km_s[v], flux, rotated);
        bin_template(bins, arm, step, g * lib->n_guess_vsini + v, rotated);
      }
    }
  }
done:
  mill_free(flux);
  mill_free(rotated);
  if (err)
    mill_guess_table_clear(table);
  return err;
}

int mill_guess_table_n_bin(const mill_guess_table *table, int n_pix, const double *wave_aa)
{
  return (int)(bin_of(log(wave_aa[n_pix - 1]), table->ln_step) -
               bin_of(log(wave_aa[0]), table->ln_step)) +
         1;
}

/** Continuum functions whose sums are made in one pass. */
enum { TILE = 5 };

/** What a set of bins needs of one arm, and where the results go. */
typedef struct fill_task {
  int nk, pitch;      /**< continuum functions, and with padding to whole tiles */
  int half, n, width; /**< bins on each side; of the data; all */
  const mill_guess_arm *bins;
  long first;           /**< index of the first of all in bins; may lie before it */
  const double *basis;  /**< [width][pitch] continuum functions */
  const double *factor; /**< [nk][nk] Cholesky factor of their normal matrix */
  float *templ;         /**< [n_templ][width] */
} fill_task;

static int bin_count(const fill_task *f, int i)
{
  const long b = f->first + i;
  return b >= 0 && b < f->bins->n_bin ? f->bins->count[b] : 0;
}

typedef double four __attribute__((vector_size(32)));
_Static_assert(MILL_GUESS_LANES == 8 && TILE == 5, "guess_fill_impl.h writes these sums out");

#define FILL_GROUP fill_group_any
#define FILL_TARGET
#include "src/guess_fill_impl.h"
#undef FILL_GROUP
#undef FILL_TARGET

/* Wider registers, but no fused products: the same bits on every processor of a kind. */
#if defined(__x86_64__)
#define FILL_GROUP  fill_group_avx2
#define FILL_TARGET __attribute__((target("avx2")))
#include "src/guess_fill_impl.h"
#undef FILL_GROUP
#undef FILL_TARGET
#endif

static void fill_group(const fill_task *f, int group, int n_templ)
{
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    fill_group_avx2(f, group, n_templ);
    return;
  }
#endif
  fill_group_any(f, group, n_templ);
}

int mill_guess_table_fill(const mill_guess_table *table, const mill_library *lib,
                          const mill_fit_settings *set, int i_arm, int n_pix, const double *wave_aa,
                          int n_thread, int *bin_first, float *templ)
{
  int err = MILL_OK;
  const double step = table->ln_step;
  const int nk = set->n_cont, half = table->half, pitch = (nk + TILE - 1) / TILE * TILE;
  double *basis = NULL;
  double normal[MILL_MAX_CONT * MILL_MAX_CONT];

  /* bins have a common origin, so that those of all arms line up */
  const long bin0 = bin_of(log(wave_aa[0]), step);
  const int n = mill_guess_table_n_bin(table, n_pix, wave_aa), width = n + 2 * half;
  MILL_TRY(MILL_ALLOC((size_t)pitch * (size_t)width, &basis));
  int p = 0;
  for (int i = 0; i <= n; i++) {
    while (p < n_pix && bin_of(log(wave_aa[p]), step) < bin0 + i)
      p++;
    bin_first[i] = p;
  }
  bin_first[n] = n_pix;

  /* continuum functions at bin centres; beyond the data they take the edge's */
#pragma omp parallel for schedule(static) num_threads(n_thread)
  for (int i = 0; i < width; i++) {
    const double wave = exp(((double)(bin0 - half + i) + 0.5) * step);
    double x = 2.0 * (wave - wave_aa[0]) / (wave_aa[n_pix - 1] - wave_aa[0]) - 1.0;
    x = x < -1.0 ? -1.0 : (x > 1.0 ? 1.0 : x);
    for (int k = 0; k < nk; k++)
      basis[(size_t)i * (size_t)pitch + (size_t)k] = mill_continuum(set->continuum, nk, k, x);
  }
  const fill_task task = {.nk = nk,
                          .pitch = pitch,
                          .half = half,
                          .n = n,
                          .width = width,
                          .bins = &table->arm[i_arm],
                          .first = bin0 - half - table->arm[i_arm].bin0,
                          .basis = basis,
                          .factor = normal,
                          .templ = templ};
  /* bins are full for all templates or for none, so one matrix serves them all */
  memset(normal, 0, sizeof normal);
  for (int i = half; i < half + n; i++)
    for (int k = 0; k < nk && bin_count(&task, i) > 0; k++)
      for (int l = 0; l <= k; l++)
        normal[k * nk + l] += basis[(size_t)i * (size_t)pitch + (size_t)k] *
                              basis[(size_t)i * (size_t)pitch + (size_t)l];
  if (mill_cholesky(nk, normal, nk) != 0)
    MILL_FAIL(MILL_ERR_RANGE,
              "arm %s has too few pixels (%d) for %d continuum functions; lower npoly",
              lib->arm[i_arm].name, n_pix, nk);
  const int n_group = (table->n_templ + MILL_GUESS_LANES - 1) / MILL_GUESS_LANES;
#pragma omp parallel for schedule(static) num_threads(n_thread)
  for (int g = 0; g < n_group; g++)
    fill_group(&task, g, table->n_templ);
done:
  mill_free(basis);
  return err;
}
