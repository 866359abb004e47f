/* SPDX-License-Identifier: BSD-3-Clause */
/* An operation is an addition or a multiplication; a division, a root, an exponential, a
 * logarithm or a comparison counts as one too.  Products with one and sums with zero are omitted if
 * they occur in the mathematics, not in the code.  Rotation and the widths of line-spread
 * functions, which few stars need, are left out too: the floor is a lower bound. */
#include "jobs/bench/bench_floor.h"

#include <string.h>

#include "kernels/math/doppler.h"
#include "kernels/math/rbf.h"
#include "kernels/star/slot.h"
#include "src/pipeline/guess_table.h"
#include "src/stars/line_spread.h"

/* ---- sizes of the stars ---- */

void mill_bench_shape_add(mill_bench_shape *shape, const mill_library *lib,
                          const mill_fit_settings *set, const mill_star *star)
{
  const double bin = set->guess_vel_step_km_s / MILL_C_KM_S;
  unsigned seen = 0;
  shape->n_star++;
  for (int i = 0; i < star->n_segment; i++) {
    const mill_raw_segment *s = &star->segment[i];
    const int64_t n = s->n_pix;
    const enum mill_lsf_use use = mill_lsf_use_of(lib, set, s);
    shape->arm[s->arm].n_star += !(seen >> s->arm & 1);
    seen |= 1u << s->arm;
    shape->arm[s->arm].n_segment++;
    shape->arm[s->arm].n_pix += n;
    shape->arm[s->arm].n_guess_bin +=
        (int64_t)floor(log(s->wave_aa[n - 1]) / bin) - (int64_t)floor(log(s->wave_aa[0]) / bin) + 1;
    shape->arm[s->arm].raw_bytes += n * (s->mask ? 12 : 8);
    if (use == MILL_LSF_BY_MATRIX) {
      shape->arm[s->arm].n_res += n * s->n_diag;
      shape->arm[s->arm].raw_bytes += n * s->n_diag * 4;
    }
    if (use == MILL_LSF_BY_SIGMA) {
      /* five weights a pixel at least: fewer make no Gaussian */
      shape->arm[s->arm].n_res += n * 5;
      shape->arm[s->arm].raw_bytes += n * 4;
    }
  }
}

/* ---- one evaluation ---- */

/** Averages over the stars of a run, and the settings, as the formulas want them. */
typedef struct sizes {
  const mill_library *lib;
  int n_label, n_par, n_cont;
  int wide;                    /**< templates in float64 */
  double share;                /**< 1 / stars at once */
  double real;                 /**< bytes of a template's number */
  double n_pix;                /**< pixels of a star, all segments */
  double n_res;                /**< weights of its resolution rows */
  double n_segment;            /**< of a star */
  double weight[MILL_MAX_ARM]; /**< fraction of the stars that have the arm */
} sizes;

static void add(mill_bench_work *to, double factor, const mill_bench_work *what)
{
  to->f32 += factor * what->f32;
  to->f64 += factor * what->f64;
  to->bytes_file += factor * what->bytes_file;
  to->bytes_memory += factor * what->bytes_memory;
  to->bytes_cache += factor * what->bytes_cache;
}

/** Operations on templates. */
static void add_real(const sizes *z, mill_bench_work *w, double ops)
{
  *(z->wide ? &w->f64 : &w->f32) += ops;
}

/** The front for one value and n_tangent tangents: float64, and in *layers the products of hidden
 *  layers for the tangents, which are of the run's precision. */
static double front_ops(const mill_emulator *e, int n_tangent, double *layers)
{
  double ops = 0.0;
  *layers = 0.0;
  if (e->kind == MILL_EMULATOR_GRID) {
    /* lines of four (two) points along the last axis, then these lines */
    const double order = mill_spline_grid_order(&e->grid);
    const double points = pow(order, e->grid.n_axis), lines = points / order;
    ops += e->grid.n_out * 2.0 * (points + lines);
    if (n_tangent > 0)
      ops += e->grid.n_out * 2.0 * (points + lines + (n_tangent - 1) * lines);
  }
  if (e->kind == MILL_EMULATOR_RBF) {
    const double n = e->rbf.n_center + e->rbf.n_poly;
    ops += e->rbf.n_center * (3.0 * e->rbf.n_axis + 2.0);
    ops += n * e->rbf.n_out * 2.0 * (1 + n_tangent);
  }
  for (int l = 0; l < e->n_layer - 1; l++) {
    /* z / (1 + exp(-z)); its slope from the same exponential, times every tangent */
    ops += e->n_out[l] * (2.0 * e->n_in[l] + (n_tangent > 0 ? 6.0 : 3.0));
    *layers += e->n_out[l] * (2.0 * e->n_in[l] + 1.0) * n_tangent;
  }
  return ops;
}

/** Numbers of an emulator. */
static double emulator_bytes(const sizes *z, const mill_emulator *e)
{
  const int last = e->n_layer - 1;
  double bytes = ((double)e->n_in[last] + 1.0) * e->n_out[last] * z->real;
  for (int l = 0; l < last; l++)
    bytes += ((double)e->n_in[l] + 1.0) * e->n_out[l] * 4.0;
  if (e->kind == MILL_EMULATOR_GRID) /* of the coefficients those around one place */
    bytes += pow(mill_spline_grid_order(&e->grid), e->grid.n_axis) * e->grid.n_out * 4.0;
  if (e->kind == MILL_EMULATOR_RBF)
    bytes += ((double)e->rbf.n_center + e->rbf.n_poly) * e->rbf.n_out * 4.0;
  return bytes;
}

/** Source of an emulator's rows. */
enum rows { ROWS_MADE = 0, ROWS_STORED };

/** Rows of arm a's emulator. */
static void emulator_work(const sizes *z, int a, int n_tangent, enum rows rows, mill_bench_work *w)
{
  const mill_emulator *e = &z->lib->arm[a].emulator;
  const double n = z->lib->arm[a].n_pix, n_in = e->n_in[e->n_layer - 1];
  double layers;
  if (rows == ROWS_STORED)
    return;
  w->f64 += front_ops(e, n_tangent, &layers);
  add_real(z, w, layers);
  w->bytes_cache += z->share * emulator_bytes(z, e);
  add_real(z, w, 2.0 * n_in * n * (1 + n_tangent));
}

/** New labels: the emulator's rows, rotation and spline coefficients of all arms. */
static void template_work(const sizes *z, int jacobian, enum rows rows, mill_bench_work *out)
{
  const int n_tangent = jacobian ? z->n_label : 0;
  memset(out, 0, sizeof *out);
  for (int a = 0; a < z->lib->n_arm; a++) {
    const mill_emulator *e = &z->lib->arm[a].emulator;
    const double n = z->lib->arm[a].n_pix;
    mill_bench_work w;
    memset(&w, 0, sizeof w);
    emulator_work(z, a, n_tangent, rows, &w);
    /* flux: an exponential, and the product rule for tangents */
    add_real(z, &w, n * ((e->log_flux ? 1.0 : 0.0) + n_tangent * (e->log_flux ? 2.0 : 1.0)));
    /* second differences 4, a recursion from each side 2 + 2 */
    add_real(z, &w, n * 8.0 * (jacobian ? 2 + n_tangent : 1));
    w.bytes_cache += n * z->real * (1 + n_tangent);
    add(out, z->weight[a], &w);
  }
}

/** Templates at the pixels for one velocity, n_row of them, and (jacobian) the derivative by
 *  velocity. */
static void pixel_work(const sizes *z, int jacobian, mill_bench_work *w)
{
  const int n_row = jacobian ? 1 + z->n_label + 1 : 1; /* value, v sin i, labels */
  /* place in the grid 5, weights of the spline 7; a row: four products and their sum */
  add_real(z, w, z->n_pix * (12.0 + 7.0 * n_row));
  if (jacobian)
    add_real(z, w, z->n_pix * 12.0);
  add_real(z, w, 2.0 * z->n_res * (jacobian ? z->n_par + 1 : 1));
}

/** Normal matrix, its factor and F, float64. */
static double project_ops(const sizes *z)
{
  const double k = z->n_cont;
  /* weights 5; products of functions, each once, and with the data */
  return z->n_pix * (5.0 + k * (k + 1.0) + 2.0 * k) +
         z->n_segment * (k * k * k / 3.0 + 4.0 * k * k);
}

/** Gradient and curvature from the projected rows, float64. */
static double curvature_ops(const sizes *z)
{
  const double k = z->n_cont, p = z->n_par;
  /* continuum 2 k, residual 2, rows times it p + 1; V^T V; S^T V; V^T r; the determinant:
   * p^T N^-1 p k (k + 1), with each row 3 */
  return z->n_pix * (2.0 * k + 2.0 + p + 1.0 + p * (p + 1.0) + p + 2.0 * k * p + 2.0 * p +
                     k * (k + 1.0) + 3.0 * p) +
         z->n_segment * p * (k * k + k * (p + 1.0));
}

/** Of a star's spectrum, weights and resolution rows. */
static double star_bytes(const sizes *z)
{
  return z->n_pix * 8.0 + z->n_res * 4.0;
}

/** Work on a star's pixels in a round. */
static double round_bytes(const sizes *z)
{
  return star_bytes(z) + z->share * z->n_pix * z->n_cont * 4.0;
}

static void value_work(const sizes *z, mill_bench_work *w)
{
  template_work(z, 0, ROWS_MADE, w);
  pixel_work(z, 0, w);
  w->f64 += project_ops(z);
  w->bytes_cache += round_bytes(z);
}

static void jacobian_work(const sizes *z, enum rows rows, mill_bench_work *w)
{
  template_work(z, 1, rows, w);
  pixel_work(z, 1, w);
  w->f64 += project_ops(z) + curvature_ops(z);
  w->bytes_cache += round_bytes(z);
}

/* ---- stages ---- */

static void prepare_work(const sizes *z, double raw_bytes, mill_bench_work *w)
{
  /* S/N, sigma, data over sigma, ln sigma and two sums: 9; three medians 3 */
  w->f64 += z->n_pix * 12.0;
  /* rows, their sums and the median of these */
  w->f64 += z->n_res + (z->n_res > 0.0 ? z->n_pix : 0.0);
  w->bytes_memory += raw_bytes + star_bytes(z);
}

static void guess_work(const sizes *z, const mill_fit_settings *set, double n_bin,
                       mill_bench_work *w)
{
  const double fastest = fmax(fabs(set->min_vel_km_s), fabs(set->max_vel_km_s));
  const double half = ceil(atanh(fastest / MILL_C_KM_S) / (set->guess_vel_step_km_s / MILL_C_KM_S));
  const double n_templ = (double)z->lib->n_guess * z->lib->n_guess_vsini;
  /* the data's own continuum, then two sums over bins */
  w->f64 += project_ops(z) + z->n_pix * (2.0 * z->n_cont + 6.0);
  /* transforms of blocks of the data and one back for each template, a complex product for each
   * template, block and frequency; all velocities come together */
  const double n = mill_guess_fourier_length(2.0 * half + 1.0), n_block = n_bin / (n - 2.0 * half);
  w->f32 += 5.0 * n * log2(n) * (n_block + n_templ) + 8.0 * n_templ * n_block * n;
  w->bytes_memory += z->n_pix * 8.0;
  w->bytes_memory += z->share * n_templ * n_block * n * 8.0;
}

/** The template of the point that was accepted is known, so no emulator. */
static void velocity_work(const sizes *z, mill_bench_work *w)
{
  pixel_work(z, 0, w);
  w->f64 += project_ops(z);
}

/** Chi-squares of the solution and of the continuum alone, whose coefficients are known. */
static void final_work(const sizes *z, mill_bench_work *w)
{
  w->f64 += z->n_pix * 2.0 * (2.0 * z->n_cont + 5.0);
  w->bytes_cache += round_bytes(z);
}

/** The sizes of a star that has arm a, of that arm alone. */
static sizes sizes_of_arm(const sizes *z, const mill_bench_shape *shape, int a)
{
  sizes one = *z;
  const double n = fmax((double)shape->arm[a].n_star, 1.0);
  one.n_pix = (double)shape->arm[a].n_pix / n;
  one.n_res = (double)shape->arm[a].n_res / n;
  one.n_segment = (double)shape->arm[a].n_segment / n;
  for (int i = 0; i < z->lib->n_arm; i++)
    one.weight[i] = i == a ? 1.0 : 0.0;
  return one;
}

static void add_jacobians(const sizes *z, double n, double n_stored, mill_bench_work *out)
{
  mill_bench_work made, stored;
  jacobian_work(z, ROWS_MADE, &made);
  jacobian_work(z, ROWS_STORED, &stored);
  add(out, n - n_stored, &made);
  add(out, n_stored, &stored);
}

/** Requests of a stage. */
static void add_rounds(const sizes *z, const mill_bench_shape *shape, const mill_timing *t,
                       int phase, mill_bench_work *out)
{
  mill_bench_work value;
  double n_whole = (double)t->n_jacobian[phase], n_stored = 0.0;
  value_work(z, &value);
  add(out, (double)t->n_value[phase], &value);
  if (phase == MILL_PHASE_POLISH) {
    n_stored = (double)t->n_stored[0];
    for (int a = 0; a < z->lib->n_arm; a++) {
      const sizes one = sizes_of_arm(z, shape, a);
      add_jacobians(&one, (double)t->n_led[1 + a], (double)t->n_stored[1 + a], out);
      n_whole -= (double)t->n_led[1 + a];
    }
  }
  add_jacobians(z, n_whole, n_stored, out);
}

static void take_sizes(const mill_library *lib, const mill_fit_settings *set,
                       const mill_bench_shape *shape, int n_slot, sizes *z, double *raw_bytes,
                       double *n_bin)
{
  const double n_star = (double)shape->n_star;
  memset(z, 0, sizeof *z);
  *raw_bytes = *n_bin = 0.0;
  z->lib = lib;
  z->n_label = lib->n_label;
  z->n_par = lib->n_label + MILL_PAR_LABEL0;
  z->n_cont = set->n_cont;
  z->wide = set->precision == MILL_FLOAT64;
  z->real = z->wide ? 8.0 : 4.0;
  z->share = 1.0 / n_slot;
  for (int a = 0; a < lib->n_arm; a++) {
    z->n_pix += (double)shape->arm[a].n_pix / n_star;
    z->n_res += (double)shape->arm[a].n_res / n_star;
    z->n_segment += (double)shape->arm[a].n_segment / n_star;
    *raw_bytes += (double)shape->arm[a].raw_bytes / n_star;
    *n_bin += (double)shape->arm[a].n_guess_bin / n_star;
    z->weight[a] = (double)shape->arm[a].n_star / n_star;
  }
}

void mill_bench_floor_count(const mill_library *lib, const mill_fit_settings *set,
                            const mill_bench_shape *shape, const mill_timing *timing, int n_slot,
                            size_t row_bytes, size_t l2_bytes, mill_bench_work *work)
{
  mill_bench_work one;
  sizes z;
  double raw_bytes, n_bin;
  memset(work, 0, MILL_BENCH_N_STAGE * sizeof *work);
  if (shape->n_star == 0)
    return;
  const double n_star = (double)shape->n_star;
  take_sizes(lib, set, shape, n_slot, &z, &raw_bytes, &n_bin);

  work[MILL_BENCH_READ].bytes_file = n_star * raw_bytes;
  one = (mill_bench_work){0};
  prepare_work(&z, raw_bytes, &one);
  add(&work[MILL_BENCH_PREPARE], n_star, &one);
  one = (mill_bench_work){0};
  guess_work(&z, set, n_bin, &one);
  add(&work[MILL_BENCH_GUESS], n_star, &one);
  add_rounds(&z, shape, timing, MILL_PHASE_SIMPLEX, &work[MILL_BENCH_SIMPLEX]);
  add_rounds(&z, shape, timing, MILL_PHASE_POLISH, &work[MILL_BENCH_POLISH]);
  one = (mill_bench_work){0};
  velocity_work(&z, &one);
  add(&work[MILL_BENCH_PROFILE], (double)timing->n_velocity, &one);
  work[MILL_BENCH_PROFILE].bytes_cache +=
      (double)timing->n_value[MILL_PHASE_PROFILE] * round_bytes(&z);
  one = (mill_bench_work){0};
  final_work(&z, &one);
  add(&work[MILL_BENCH_FINAL], (double)timing->n_value[MILL_PHASE_FINAL], &one);
  work[MILL_BENCH_WRITE].bytes_memory = n_star * (double)row_bytes;

  /* does a star stay in the cache from one round to the next? */
  double template_bytes = 0.0;
  for (int a = 0; a < lib->n_arm; a++)
    template_bytes += z.weight[a] * lib->arm[a].n_pix * z.real;
  if (star_bytes(&z) + template_bytes > 0.5 * (double)l2_bytes)
    for (int s = 0; s < MILL_BENCH_N_STAGE; s++) {
      work[s].bytes_memory += work[s].bytes_cache;
      work[s].bytes_cache = 0.0;
    }
}

double mill_bench_floor_s(const mill_bench_work *work, const mill_bench_rates *rates,
                          int *by_traffic)
{
  const struct {
    double amount, rate;
  } part[] = {{work->f32, rates->f32_gflop_s},
              {work->f64, rates->f64_gflop_s},
              {work->bytes_file, rates->read_gbyte_s},
              {work->bytes_memory, rates->copy_memory_gbyte_s},
              {work->bytes_cache, rates->copy_cache_gbyte_s}};
  double spent[2] = {0.0, 0.0};
  for (int i = 0; i < 5; i++)
    if (part[i].amount > 0.0 && part[i].rate > 0.0)
      spent[i >= 2] += 1e-9 * part[i].amount / part[i].rate;
  if (by_traffic)
    *by_traffic = spent[1] > spent[0];
  return fmax(spent[0], spent[1]);
}
