/* SPDX-License-Identifier: BSD-3-Clause */
/* Properties of the stars: functions of the settings, the seed and the index. */
#include <math.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/math/hull.h"
#include "src/mock/mock_internal.h"

#define MILL_MOCK_KIND_NAME(code, name, text) name,
static const char *const kind_name[MILL_MOCK_N_KIND] = {MILL_MOCK_KIND_LIST(MILL_MOCK_KIND_NAME)};
#undef MILL_MOCK_KIND_NAME

enum { N_TILE_STAR = 5000 };

static const double pi = 3.14159265358979323846;

const char *mill_mock_kind_name(int kind)
{
  return kind >= 0 && kind < MILL_MOCK_N_KIND ? kind_name[kind] : "unknown";
}

/** TARGETID as DESI packs it (Myers et al. 2023, AJ 165, 50): 22 bits of object in its
 *  brick, 20 of brick, 16 of imaging release, then a bit that says "mock". */
static int64_t target_id(int64_t index)
{
  const int64_t release = 9010, object = index & 0x3fffff, brick = (index >> 22) + 1;
  return object | brick << 22 | release << 42 | (int64_t)1 << 58;
}

static double log_uniform(mill_random *r, double min, double max)
{
  return min * exp(mill_random_uniform(r) * log(max / min));
}

/** One point of the labels' box; returns whether it lies inside all hulls. */
static int draw_labels(const mill_library *lib, mill_random *r, double *label)
{
  double mapped[MILL_MAX_LABEL];
  for (int l = 0; l < lib->n_label; l++) {
    const mill_label *info = &lib->label[l];
    label[l] = info->min + (info->max - info->min) * mill_random_uniform(r);
    mapped[l] = mill_label_map(info, label[l]);
  }
  return mill_hull_signed(lib->n_hull, lib->hull, mapped) <= 0.0;
}

int mill_mock_draw_check(const mill_mock_survey *survey)
{
  int n_inside = 0;
  double label[MILL_MAX_LABEL];
  mill_random r;
  const mill_library *lib = survey->lib;
  for (int l = 0; l < lib->n_label; l++)
    if (!(isfinite(lib->label[l].min) && isfinite(lib->label[l].max) &&
          lib->label[l].min <= lib->label[l].max))
      return MILL_ERROR(MILL_ERR_LIBRARY, "%s: label %s has no range to draw stars from", lib->path,
                        lib->label[l].name);
  mill_random_begin(&r, 1, 0, MILL_MOCK_RANDOM_STAR);
  for (int i = 0; i < 20000; i++)
    n_inside += draw_labels(lib, &r, label);
  if (n_inside < 20)
    return MILL_ERROR(
        MILL_ERR_LIBRARY,
        "%s: %d of 20000 points between the labels' limits lie inside the hulls, too few to "
        "draw stars from; check hulls and limits",
        lib->path, n_inside);
  return MILL_OK;
}

/** Parameters of a noise-free spectrum. */
static void draw_intrinsic(const mill_mock_survey *survey, int64_t index, mill_mock_star *star)
{
  const mill_mock_settings *set = &survey->set;
  mill_random r;
  star->lsf_group = (int)(index % MILL_MOCK_N_LSF);
  mill_random_begin(&r, set->seed, (uint64_t)index, MILL_MOCK_RANDOM_STAR);
  while (!draw_labels(survey->lib, &r, star->label))
    continue; /* mill_mock_draw_check: one in a thousand is inside, or more */
  do
    star->vrad_km_s = set->vel_sigma_km_s * mill_random_normal(&r);
  while (fabs(star->vrad_km_s) > MILL_MOCK_VEL_CUT);
  if (set->max_vsini > 0.0)
    star->vsini_km_s = log_uniform(&r, set->min_vsini, set->max_vsini);
  else if (mill_random_uniform(&r) < 0.8)
    star->vsini_km_s = log_uniform(&r, 1.0, 10.0);
  else
    star->vsini_km_s = log_uniform(&r, 10.0, 150.0);
  mill_random_begin(&r, set->seed, (uint64_t)index, MILL_MOCK_RANDOM_SHARE);
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    for (int k = 0; k < mill_mock_n_share(survey, a); k++)
      star->share[a][k] = mill_random_normal(&r);
}

/** ln of a black body's flux per frequency, but for a constant. */
static double ln_planck(double wave_aa, double temperature_k)
{
  const double x = 1.438776877e8 / (wave_aa * temperature_k);
  return -3.0 * log(wave_aa) - log(expm1(x));
}

/** AB magnitudes: r from the flux that gives the S/N in a pixel of median noise, g and z
 *  by the colours of a black body of the star's temperature. */
static void magnitudes(const mill_mock_survey *survey, mill_mock_star *star)
{
  const mill_mock_instrument *m = &survey->instrument;
  const double g = m->gain_r * star->sn * star->sn, b = m->background_r[star->lsf_group];
  /* sn^2 = f^2 / (gain f + background) */
  const double flux = 0.5 * (g + sqrt(g * g + 4.0 * b * star->sn * star->sn));
  const double wave_aa[3] = {4730.0, 6420.0, 9260.0}; /* g, r, z of DECam */
  const int i_teff = mill_library_find_label(survey->lib, "teff");
  const double teff = i_teff >= 0 ? star->label[i_teff] : 5500.0;
  const double per_mag = -2.5 / log(10.0);
  /* erg / (s cm2 A) to erg / (s cm2 Hz): lambda^2 / c; 48.6 is AB's zero */
  star->mag_r = -2.5 * log10(flux * 1e-17 * wave_aa[1] * wave_aa[1] / (MILL_C_KM_S * 1e13)) - 48.6;
  const double ln_r = ln_planck(wave_aa[1], teff);
  star->mag_g = star->mag_r + per_mag * (ln_planck(wave_aa[0], teff) - ln_r);
  star->mag_z = star->mag_r + per_mag * (ln_planck(wave_aa[2], teff) - ln_r);
}

/** Tiles have 5000 stars each, evenly over a disc of 1.6 degrees around a centre that is
 *  uniform on the sphere between -20 and 80 degrees of declination. */
static void draw_place(const mill_mock_survey *survey, mill_random *r, mill_mock_star *star)
{
  mill_random tile;
  mill_random_begin(&tile, survey->set.seed, (uint64_t)(star->index / N_TILE_STAR),
                    MILL_MOCK_RANDOM_TILE);
  const double ra0 = 360.0 * mill_random_uniform(&tile);
  const double low = sin(-20.0 * pi / 180.0), high = sin(80.0 * pi / 180.0);
  const double dec0 = asin(low + (high - low) * mill_random_uniform(&tile)) * 180.0 / pi;
  const double radius = 1.6 * sqrt(mill_random_uniform(r));
  const double angle = 2.0 * pi * mill_random_uniform(r);
  star->dec_deg = dec0 + radius * sin(angle);
  star->ra_deg = fmod(ra0 + radius * cos(angle) / cos(star->dec_deg * pi / 180.0) + 360.0, 360.0);
}

/** Kind of a row: n_pathological of every 1000, evenly, the kinds in turn. */
static int kind_of(const mill_mock_settings *set, int64_t index)
{
  const int64_t n = set->n_pathological, block = index / 1000, j = index % 1000;
  const int64_t before = block * n + j * n / 1000, after = block * n + (j + 1) * n / 1000;
  return before == after ? MILL_MOCK_STAR : (int)(1 + before % (MILL_MOCK_N_KIND - 1));
}

void mill_mock_draw(const mill_mock_survey *survey, int64_t index, mill_mock_star *star)
{
  const mill_mock_settings *set = &survey->set;
  const int kind = kind_of(set, index);
  mill_random r;
  memset(star, 0, sizeof *star);
  draw_intrinsic(survey, index, star);
  mill_random_begin(&r, set->seed, (uint64_t)index, MILL_MOCK_RANDOM_OBSERVED);
  star->sn = log_uniform(&r, set->min_sn, set->max_sn);
  star->index = index;
  star->target_id = target_id(index);
  star->kind = kind;
  draw_place(survey, &r, star);
  if (kind == MILL_MOCK_FAST_ROTATOR)
    star->vsini_km_s = 300.0;
  if (kind == MILL_MOCK_HIGH_VELOCITY)
    star->vrad_km_s = 900.0;
  magnitudes(survey, star);
  if (kind == MILL_MOCK_SKY || kind == MILL_MOCK_NOISE) {
    /* no star, so no true values */
    for (int l = 0; l < survey->lib->n_label; l++)
      star->label[l] = (double)NAN;
    for (int a = 0; a < MILL_MOCK_N_ARM; a++)
      for (int k = 0; k < MILL_MAX_ERROR; k++)
        star->share[a][k] = (double)NAN;
    star->vrad_km_s = star->vsini_km_s = (double)NAN;
    star->sn = 0.0;
    star->mag_g = star->mag_r = star->mag_z = (double)INFINITY;
  }
}
