#include "src/guess_table.h"

#include <math.h>
#include <string.h>

#include "kernels/continuum.h"
#include "kernels/error.h"
#include "kernels/hull.h"
#include "kernels/linalg.h"
#include "kernels/rotation.h"
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
  if (e->kind == MILL_EMULATOR_GRID) {
    mill_spline_grid_eval(&e->grid, x, y);
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
  for (int a = 0; a < MILL_MAX_ARM; a++)
    mill_free(table->flux[a]);
  memset(table, 0, sizeof *table);
}

/** Rotate flux [n] into out; zero beyond the grid, where no bin of the data lies. */
static void rotate(int n, double ln_step, double vsini_km_s, const double *flux, float *out)
{
  const double r_pix = vsini_km_s / (MILL_C_KM_S * ln_step);
  int half = mill_rotation_half_width(r_pix);
  if (half > MILL_MAX_ROTATION)
    half = MILL_MAX_ROTATION;
  double kernel[MILL_MAX_ROTATION + 1], slope;
  for (int k = 0; k <= half; k++)
    mill_rotation_weight(r_pix, k, &kernel[k], &slope);
  for (int i = 0; i < n; i++) {
    double sum = kernel[0] * flux[i];
    for (int k = 1; k <= half; k++)
      sum += kernel[k] * ((i >= k ? flux[i - k] : 0.0) + (i + k < n ? flux[i + k] : 0.0));
    out[i] = (float)sum;
  }
}

int mill_guess_table_create(const mill_library *lib, const mill_fit_settings *set,
                            mill_guess_table *table)
{
  int err = MILL_OK;
  double *flux = NULL;
  memset(table, 0, sizeof *table);
  table->n_templ = lib->n_guess * lib->n_guess_vsini;
  if (table->n_templ < 1)
    MILL_FAIL(MILL_ERR_LIBRARY, "%s has no templates for the initial guess; import it again",
              lib->path);
  table->ln_step = set->guess_vel_step_km_s / MILL_C_KM_S;
  const double fastest = fmax(fabs(set->min_vel_km_s), fabs(set->max_vel_km_s));
  table->half = (int)ceil(atanh(fastest / MILL_C_KM_S) / table->ln_step);
  for (int a = 0; a < lib->n_arm; a++) {
    const int n = lib->arm[a].n_pix;
    mill_free(flux);
    flux = NULL;
    MILL_TRY(MILL_ALLOC(n, &flux));
    MILL_TRY(MILL_ALLOC((size_t)table->n_templ * (size_t)n, &table->flux[a]));
    for (int g = 0; g < lib->n_guess; g++) {
      MILL_TRY(
          mill_emulator_eval(lib, a, lib->guess_label + (size_t)g * (size_t)lib->n_label, flux));
      for (int v = 0; v < lib->n_guess_vsini; v++)
        rotate(n, lib->arm[a].ln_step, lib->guess_vsini_km_s[v], flux,
               table->flux[a] + ((size_t)g * (size_t)lib->n_guess_vsini + (size_t)v) * (size_t)n);
    }
  }
done:
  mill_free(flux);
  if (err)
    mill_guess_table_clear(table);
  return err;
}

int mill_guess_table_bins(const mill_guess_table *table, const mill_library *lib,
                          const mill_fit_settings *set, int i_arm, int n_pix, const double *wave_aa,
                          int *n_bin, int **bin_first, float **templ)
{
  int err = MILL_OK;
  const mill_arm *arm = &lib->arm[i_arm];
  const double step = table->ln_step;
  const int half = table->half, nk = set->n_cont;
  double *basis = NULL, *binned = NULL;
  float *out = NULL;
  int *first = NULL, *count = NULL;

  /* bins have a common origin, so that those of all arms line up */
  const long bin0 = (long)floor(log(wave_aa[0]) / step);
  const int n = (int)((long)floor(log(wave_aa[n_pix - 1]) / step) - bin0) + 1;
  const int width = n + 2 * half;
  MILL_TRY(MILL_ALLOC(n + 1, &first));
  MILL_TRY(MILL_ALLOC((size_t)table->n_templ * (size_t)width, &out));
  MILL_TRY(MILL_ALLOC((size_t)nk * (size_t)width, &basis));
  MILL_TRY(MILL_ALLOC(width, &binned));
  MILL_TRY(MILL_ALLOC(width, &count));
  int p = 0;
  for (int i = 0; i <= n; i++) {
    while (p < n_pix && (long)floor(log(wave_aa[p]) / step) < bin0 + i)
      p++;
    first[i] = p;
  }
  first[n] = n_pix;

  /* continuum functions at bin centres; beyond the data they take the edge's */
  for (int i = 0; i < width; i++) {
    const double wave = exp(((double)(bin0 - half + i) + 0.5) * step);
    double x = 2.0 * (wave - wave_aa[0]) / (wave_aa[n_pix - 1] - wave_aa[0]) - 1.0;
    x = x < -1.0 ? -1.0 : (x > 1.0 ? 1.0 : x);
    for (int k = 0; k < nk; k++)
      basis[(size_t)k * (size_t)width + i] = mill_continuum(set->continuum, nk, k, x);
  }
  for (int t = 0; t < table->n_templ; t++) {
    const float *flux = table->flux[i_arm] + (size_t)t * (size_t)arm->n_pix;
    for (int i = 0; i < width; i++) {
      binned[i] = 0.0;
      count[i] = 0;
    }
    for (int i = 0; i < arm->n_pix; i++) {
      const long b = (long)floor((arm->ln_wave0 + (double)i * arm->ln_step) / step) - bin0 + half;
      if (b >= 0 && b < width) {
        binned[b] += (double)flux[i];
        count[b]++;
      }
    }
    double normal[MILL_MAX_CONT * MILL_MAX_CONT], a[MILL_MAX_CONT];
    memset(normal, 0, sizeof normal);
    memset(a, 0, sizeof a);
    for (int i = 0; i < width; i++) {
      if (count[i] == 0)
        continue;
      binned[i] /= (double)count[i];
      if (i < half || i >= half + n)
        continue;
      for (int k = 0; k < nk; k++) {
        const double bk = basis[(size_t)k * (size_t)width + i];
        a[k] += bk * binned[i];
        for (int l = 0; l <= k; l++)
          normal[k * nk + l] += bk * basis[(size_t)l * (size_t)width + i];
      }
    }
    if (mill_cholesky(nk, normal, nk) != 0)
      MILL_FAIL(MILL_ERR_RANGE,
                "arm %s has too few pixels (%d) for %d continuum functions; lower npoly", arm->name,
                n_pix, nk);
    mill_cholesky_solve(nk, normal, nk, a);
    float *row = out + (size_t)t * (size_t)width;
    for (int i = 0; i < width; i++) {
      double c = 0.0;
      for (int k = 0; k < nk; k++)
        c += a[k] * basis[(size_t)k * (size_t)width + i];
      /* nothing to say off the template: the mean, so that it draws no shift */
      row[i] = count[i] > 0 && c > 0.0 ? (float)(binned[i] / c - 1.0) : 0.0f;
    }
  }
  *n_bin = n;
  *bin_first = first;
  *templ = out;
  first = NULL;
  out = NULL;
done:
  mill_free(basis);
  mill_free(binned);
  mill_free(count);
  mill_free(first);
  mill_free(out);
  return err;
}
