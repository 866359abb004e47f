/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/pipeline/guess_table.h"

#include <omp.h>

#include "kernels/math/continuum.h"
#include "kernels/math/fourier.h"
#include "kernels/base/memory.h"
#include "kernels/math/linalg.h"
#include "src/pipeline/emulator.h"

void mill_guess_table_clear(mill_guess_table *table)
{
  for (int a = 0; a < MILL_MAX_ARM; a++)
    MILL_FREE(table->arm[a].mean, table->arm[a].count);
  mill_free(table->root);
  memset(table, 0, sizeof *table);
}

static long bin_of(double ln_wave, double step)
{
  return (long)floor(ln_wave / step);
}

/** Broaden an arm's templates, flux [groups][n_pix], by rotation at each v sin i of the guess, and
 *  average them over bins into bins->mean.  bin [n_pix]: each pixel's bin.  kind: set->rotation. */
static int bin_templates(const mill_library *lib, int i_arm, const mill_lanes *flux, const int *bin,
                         int n_thread, int kind, mill_guess_arm *bins)
{
  int failed = MILL_OK;
  const mill_arm *arm = &lib->arm[i_arm];
  const int n_rotation = lib->n_guess_vsini, n_bin = bins->n_bin;
  const int n_group = (lib->n_guess + MILL_LANE - 1) / MILL_LANE;
#pragma omp parallel for schedule(static) num_threads(n_thread)
  for (int i = 0; i < n_group * n_rotation; i++) {
    const int g = i / n_rotation, v = i % n_rotation;
    const double r_pix = lib->guess_vsini_km_s[v] / (MILL_C_KM_S * arm->ln_step);
    double kernel[MILL_MAX_ROTATION + 1], slope;
    mill_lanes *sum = NULL;
    int half = mill_rotation_half_width(kind, r_pix);
    if (half > MILL_MAX_ROTATION)
      half = MILL_MAX_ROTATION;
    for (int k = 0; k <= half; k++)
      mill_rotation_weight(kind, r_pix, k, &kernel[k], &slope);
    const int code = MILL_ALLOC(n_bin, &sum);
    if (code != MILL_OK) {
#pragma omp atomic write
      failed = code;
      continue;
    }
    const mill_lanes_rotation task = {.n_pix = arm->n_pix,
                                      .half = half,
                                      .kernel = kernel,
                                      .flux = flux + (size_t)g * (size_t)arm->n_pix,
                                      .bin = bin,
                                      .sum = sum};
    mill_lanes_rotate(&task);
    for (int q = 0; q < MILL_LANE && g * MILL_LANE + q < lib->n_guess; q++) {
      const int t = (g * MILL_LANE + q) * n_rotation + v; /* template, in lane t % MILL_LANE */
      /* Write by a pointer to double.  For an element of a vector, clang would store the whole
       * vector and overwrite lanes that other threads fill. */
      double *mean = (double *)(bins->mean + (ptrdiff_t)(t / MILL_LANE) * n_bin) + t % MILL_LANE;
      for (int b = 0; b < n_bin; b++)
        mean[b * MILL_LANE] = sum[b].v[q / 4][q % 4] / fmax(1.0, (double)bins->count[b]);
    }
    mill_free(sum);
  }
  if (failed != MILL_OK)
    return MILL_ERROR(failed, "no memory for %d bins of the initial guess", n_bin);
  return MILL_OK;
}

double mill_guess_fourier_length(double n_vel)
{
  double n = 16.0;
  while (n < 4.0 * n_vel)
    n *= 2.0;
  return n;
}

mill_guess_cost mill_guess_cost_of(const mill_library *lib, const mill_fit_settings *set)
{
  const double ln_step = set->guess_vel_step_km_s / MILL_C_KM_S;
  const double fastest = fmax(fabs(set->min_vel_km_s), fabs(set->max_vel_km_s));
  mill_guess_cost cost = {.n_templ = lib->n_guess * lib->n_guess_vsini,
                          .n_vel = 2.0 * ceil(atanh(fastest / MILL_C_KM_S) / ln_step) + 1.0};
  const double transform = mill_guess_fourier_length(cost.n_vel);
  const double n_lane = ceil((double)cost.n_templ / MILL_GUESS_LANE) * MILL_GUESS_LANE;
  cost.bytes = 64.0 * cost.n_templ * cost.n_vel * (double)sizeof(double); /* 64 stars' grids */
  for (int a = 0; a < lib->n_arm; a++) {
    const double n_bin = (lib->arm[a].n_pix - 1) * lib->arm[a].ln_step / ln_step + 1.0;
    cost.n_bin += n_bin;
    /* the table, and the transforms of one range of bins */
    const double n_block = ceil(n_bin / (transform - cost.n_vel + 1.0));
    cost.bytes += n_lane * (n_bin * (double)sizeof(double) +
                            n_block * transform * 2.0 * (double)sizeof(float));
  }
  return cost;
}

int mill_guess_table_create(const mill_library *lib, const mill_fit_settings *set, int n_thread,
                            mill_guess_table *table)
{
  int err = MILL_OK;
  MILL_OWNED mill_lanes *flux = NULL;
  MILL_OWNED int *bin = NULL;
  memset(table, 0, sizeof *table);
  table->n_templ = lib->n_guess * lib->n_guess_vsini;
  if (table->n_templ < 1)
    MILL_FAIL(MILL_ERR_LIBRARY, "%s has no templates for the initial guess; import it again",
              lib->path);
  const double step = table->ln_step = set->guess_vel_step_km_s / MILL_C_KM_S;
  const double fastest = fmax(fabs(set->min_vel_km_s), fabs(set->max_vel_km_s));
  table->half = (int)ceil(atanh(fastest / MILL_C_KM_S) / table->ln_step);
  table->n_group = (table->n_templ + MILL_GUESS_LANE - 1) / MILL_GUESS_LANE;
  table->n_fourier = (int)mill_guess_fourier_length(2.0 * table->half + 1.0);
  MILL_TRY(MILL_ALLOC(table->n_fourier, &table->root));
  mill_fourier_roots(table->n_fourier, table->root);
  const size_t n_lanes = (size_t)(lib->n_guess + MILL_LANE - 1) / MILL_LANE;
  int longest = 0;
  for (int a = 0; a < lib->n_arm; a++)
    longest = lib->arm[a].n_pix > longest ? lib->arm[a].n_pix : longest;
  MILL_TRY(MILL_ALLOC(n_lanes * (size_t)longest, &flux));
  MILL_TRY(MILL_ALLOC(longest, &bin));
  for (int a = 0; a < lib->n_arm; a++) {
    const mill_arm *arm = &lib->arm[a];
    const int n = arm->n_pix;
    mill_guess_arm *bins = &table->arm[a];
    bins->bin0 = bin_of(arm->ln_wave0, step);
    bins->n_bin =
        (int)(bin_of(arm->ln_wave0 + (double)(n - 1) * arm->ln_step, step) - bins->bin0) + 1;
    MILL_TRY(MILL_ALLOC(bins->n_bin, &bins->count));
    /* a group has two mill_lanes */
    MILL_TRY(MILL_ALLOC(2 * (size_t)table->n_group * (size_t)bins->n_bin, &bins->mean));
    for (int i = 0; i < n; i++) {
      bin[i] = (int)(bin_of(arm->ln_wave0 + (double)i * arm->ln_step, step) - bins->bin0);
      bins->count[bin[i]]++;
    }
    MILL_TRY(mill_emulator_lanes(lib, a, lib->n_guess, lib->guess_label, n_thread, flux));
    MILL_TRY(bin_templates(lib, a, flux, bin, n_thread, set->rotation, bins));
  }
done:
  if (err)
    mill_guess_table_clear(table);
  return err;
}

static long floor_to(long x, long unit)
{
  return (x >= 0 ? x / unit : -((unit - 1 - x) / unit)) * unit;
}

/* Round the range's ends to multiples of the margin, so that similar wavelengths share a range. */
mill_guess_range mill_guess_table_range(const mill_guess_table *table, const mill_fit_settings *set,
                                        int i_arm, int n_pix, const double *wave_aa)
{
  const mill_guess_arm *arm = &table->arm[i_arm];
  const double step = table->ln_step, margin = MILL_GUESS_MARGIN / MILL_C_KM_S / step;
  const long unit = margin > 1.0 ? (long)margin : 1;
  long first = floor_to(bin_of(log(wave_aa[0]), step), unit);
  long end = floor_to(bin_of(log(wave_aa[n_pix - 1]), step), unit) + unit;
  first = first < arm->bin0 ? arm->bin0 : first;
  end = end > arm->bin0 + arm->n_bin ? arm->bin0 + arm->n_bin : end;
  const int n_kept = table->n_fourier - 2 * table->half; /* bins of a transformed block */
  mill_guess_range range = {.arm = i_arm,
                            .n_cont =
                                mill_continuum_count(set, n_pix, wave_aa[n_pix - 1] - wave_aa[0]),
                            .n_bin = (int)(end - first),
                            .bin0 = first};
  /* masked pixels at the end need no blocks */
  while (n_pix > 1 && mill_wave_masked(set, wave_aa[n_pix - 1]))
    n_pix--;
  const int n_unmasked = (int)(bin_of(log(wave_aa[n_pix - 1]), step) - first) + 1;
  range.n_block = n_unmasked < n_kept ? 1 : (n_unmasked + n_kept - 1) / n_kept;
  range.n_used = range.n_block * n_kept < range.n_bin ? range.n_block * n_kept : range.n_bin;
  return range;
}

void mill_guess_table_bins(const mill_guess_table *table, const mill_guess_range *range, int n_pix,
                           const double *wave_aa, int *bin_first)
{
  int p = 0;
  for (int i = 0; i < range->n_bin; i++) {
    while (p < n_pix && bin_of(log(wave_aa[p]), table->ln_step) < range->bin0 + i)
      p++;
    bin_first[i] = p;
  }
  bin_first[range->n_bin] = n_pix;
}

size_t mill_guess_table_numbers(const mill_guess_table *table, const mill_guess_range *range)
{
  return (size_t)table->n_group * (size_t)table->n_fourier * (size_t)range->n_block * 2 *
         MILL_GUESS_LANE;
}

/* Compute the continuum functions, basis [n_bin + 2 half][pitch], at the centres of the range's
 * bins and of table->half bins on each side; beyond the range, functions keep their end values. */
static void continuum_at_bins(const mill_guess_table *table, const mill_fit_settings *set,
                              const mill_guess_range *range, int pitch, int n_thread, double *basis)
{
  const double step = table->ln_step;
  const double wave0 = exp((double)range->bin0 * step);
  const double wave1 = exp((double)(range->bin0 + range->n_bin) * step);
  const int nk = range->n_cont;
#pragma omp parallel for schedule(static) num_threads(n_thread)
  for (int i = 0; i < range->n_bin + 2 * table->half; i++) {
    const double wave = exp(((double)(range->bin0 - table->half + i) + 0.5) * step);
    double x = 2.0 * (wave - wave0) / (wave1 - wave0) - 1.0;
    x = fmax(-1.0, fmin(x, 1.0));
    for (int k = 0; k < nk; k++)
      basis[(size_t)i * (size_t)pitch + (size_t)k] = mill_continuum(set->continuum, nk, k, x);
  }
}

int mill_guess_table_fill(const mill_guess_table *table, const mill_library *lib,
                          const mill_fit_settings *set, const mill_guess_range *range, int n_thread,
                          float *templ)
{
  const mill_guess_arm *arm = &table->arm[range->arm];
  const int nk = range->n_cont, half = table->half, n_fourier = table->n_fourier;
  const int pitch = (nk + MILL_LANES_TILE - 1) / MILL_LANES_TILE * MILL_LANES_TILE;
  const long bin0 = range->bin0;
  const int n = range->n_bin, width = n + 2 * half;
  const size_t n_normal = (size_t)width * MILL_GUESS_LANE,
               n_own = n_normal + (size_t)n_fourier * 2 * MILL_GUESS_LANE;
  MILL_OWNED double *basis = NULL;
  MILL_OWNED float *own = NULL;
  double normal[MILL_MAX_CONT * MILL_MAX_CONT];
  MILL_CHECK(MILL_ALLOC((size_t)pitch * (size_t)width, &basis));
  MILL_CHECK(MILL_ALLOC((size_t)n_thread * n_own, &own));
  continuum_at_bins(table, set, range, pitch, n_thread, basis);
  const mill_lanes_fill task = {.nk = nk,
                                .pitch = pitch,
                                .side = half,
                                .n = n,
                                .width = width,
                                .n_bin = arm->n_bin,
                                .count = arm->count,
                                .mean = arm->mean,
                                .first = bin0 - half - arm->bin0,
                                .basis = basis,
                                .factor = normal};
  /* all templates have data in the same bins, so they share the matrix of the normal equations */
  memset(normal, 0, sizeof normal);
  for (int i = half; i < half + n; i++) {
    const double *f = basis + (size_t)i * (size_t)pitch;
    for (int k = 0; k < nk && mill_lanes_count(&task, i) > 0; k++)
      for (int l = 0; l <= k; l++)
        normal[k * nk + l] += f[k] * f[l];
  }
  if (mill_cholesky(nk, normal, nk) != 0)
    return MILL_ERROR(
        MILL_ERR_RANGE,
        "arm %s has too few wavelengths (%d bins) for %d continuum functions; lower npoly",
        lib->arm[range->arm].name, n, nk);
  const size_t group_size = mill_guess_table_numbers(table, range) / (size_t)table->n_group;
#pragma omp parallel for schedule(static) num_threads(n_thread)
  for (int g = 0; g < table->n_group; g++) {
    mill_lanes_fill fill = task;
    fill.templ = own + (size_t)omp_get_thread_num() * n_own;
    for (int i = 0; i < 2; i++) /* halves of a group: MILL_LANE templates each */
      mill_lanes_fill_half(&fill, 2 * g + i);
    const mill_lanes_transform transform = {.n = n_fourier,
                                            .n_block = range->n_block,
                                            .n_kept = n_fourier - 2 * half,
                                            .width = width,
                                            .root = table->root,
                                            .from = fill.templ,
                                            .work = fill.templ + n_normal,
                                            .to = templ + (size_t)g * group_size};
    mill_lanes_transform_group(&transform);
  }
  return MILL_OK;
}
