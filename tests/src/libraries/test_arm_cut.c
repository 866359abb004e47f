/* SPDX-License-Identifier: BSD-3-Clause */
/* Cutting a spectrum into an arm: against lines whose convolution and average over a pixel are
 * known in closed form, at several samplings, and what is refused. */
#include "tests/mill_test.h"

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/libraries/arm_cut.h"

enum { N_LINE = 60 };

/* Gaussian lines on a sloping continuum, all of one width. */
typedef struct scene {
  double sigma, center[N_LINE], depth[N_LINE];
} scene;

static void make_scene(double sigma, double low, double high, scene *out)
{
  out->sigma = sigma;
  for (int i = 0; i < N_LINE; i++) { /* places and depths without a pattern */
    out->center[i] = low + (high - low) * fmod(0.5 + 0.6180339887 * i, 1.0);
    out->depth[i] = 0.1 + 0.8 * fmod(0.7548776662 * i, 1.0);
  }
}

/* Blends of lines add up: only the sum's convolution is compared, not a physical spectrum. */
static double flux_at(const scene *s, double wave)
{
  double flux = 3 + 1e-3 * (wave - 5000);
  for (int i = 0; i < N_LINE; i++) {
    const double z = (wave - s->center[i]) / s->sigma;
    flux -= s->depth[i] * exp(-0.5 * z * z);
  }
  return flux;
}

/* The average over [lo, hi] after a convolution with a Gaussian of sigma kernel. */
static double exact(const scene *s, double kernel, double lo, double hi)
{
  const double wide = hypot(s->sigma, kernel);
  double flux = 3 + 1e-3 * (0.5 * (lo + hi) - 5000);
  for (int i = 0; i < N_LINE; i++)
    flux -= s->depth[i] * s->sigma * sqrt(M_PI / 2) *
            (erf((hi - s->center[i]) / (wide * M_SQRT2)) -
             erf((lo - s->center[i]) / (wide * M_SQRT2))) /
            (hi - lo);
  return flux;
}

enum { LINEAR, LOGARITHMIC, UNEVEN };

/* Wavelengths from about low to high with steps near step. */
static int make_wave(int kind, double low, double high, double step, double **out)
{
  const int n = (int)((high - low) / step);
  assert_ok(MILL_ALLOC(n, out));
  for (int i = 0; i < n; i++) {
    const double u = (double)i / (n - 1);
    if (kind == LOGARITHMIC)
      (*out)[i] = low * pow(high / low, u);
    else
      (*out)[i] = low + (high - low) * (kind == LINEAR ? u : u + 0.01 * sin(20 * u));
  }
  return n;
}

/* Largest difference from the closed form; kernel(p) = k0 + k1 p / n_pix. */
static double largest_error(int kind, double step, double line_sigma, double k0, double k1,
                            double ln_step, int n_thread)
{
  enum { N_PIX = 300 };
  const double ln_wave0 = log(5000.0);
  double kernel[N_PIX], out[N_PIX], *wave = NULL, *flux = NULL, low, high, most = 0;
  scene s;
  mill_arm_cut *cut = NULL;
  for (int p = 0; p < N_PIX; p++)
    kernel[p] = k0 + k1 * p / N_PIX;
  make_scene(line_sigma, 5000, 5000 * exp(N_PIX * ln_step), &s);
  assert_ok(mill_arm_cut_create(N_PIX, ln_wave0, ln_step, kernel, &cut));
  mill_arm_cut_range(cut, &low, &high);
  const int n = make_wave(kind, low - 3, high + 3, step, &wave);
  assert_ok(MILL_ALLOC(n, &flux));
  for (int i = 0; i < n; i++)
    flux[i] = flux_at(&s, wave[i]);
  flux[0] = NAN; /* beyond what is needed */
  assert_ok(mill_arm_cut_prepare(cut, n, wave, n_thread));
  assert_ok(mill_arm_cut_apply(cut, n, wave, flux, n_thread, out));
  for (int p = 0; p < N_PIX; p++) {
    const double lo = exp(ln_wave0 + (p - 0.5) * ln_step), hi = exp(ln_wave0 + (p + 0.5) * ln_step);
    most = fmax(most, fabs(out[p] - exact(&s, kernel[p], lo, hi)));
  }
  mill_arm_cut_destroy(cut);
  MILL_FREE(wave, flux);
  return most;
}

/* Tolerances: a cubic spline through a line of depth 1 is off by at most h^4 / 384 of its fourth
   derivative, 3 / (384 n^4) with n samples a sigma: 2e-4 for 2.5 samples and 1.3e-5 for 5, of which
   a convolution leaves a part.  The wings beyond 5 sigma are 6e-7 of the depth. */
MILL_TEST(convolution_is_that_of_the_closed_form)
{
  for (int kind = LINEAR; kind <= UNEVEN; kind++) {
    /* DESI: sigma 0.5 A from lines of R 100000 */
    assert_close(largest_error(kind, 0.01, 0.05, 0.5, 0, 6e-5, 1), 0, 2e-6);
    /* a resolution that changes along the arm, by 3 */
    assert_close(largest_error(kind, 0.02, 0.06, 0.4, 0.8, 6e-5, 2), 0, 2e-6);
    /* a kernel much narrower than a pixel, and one below a step of the spectrum */
    assert_close(largest_error(kind, 0.02, 0.1, 0.05, 0, 6e-5, 1), 0, 1.5e-5);
    assert_close(largest_error(kind, 0.05, 0.25, 0.02, 0.02, 6e-5, 1), 0, 1.5e-5);
    /* coarse: lines of 2.5 samples a sigma, a kernel of their own width */
    assert_close(largest_error(kind, 0.2, 0.5, 0.5, 0, 1e-4, 1), 0, 5e-5);
  }
}

MILL_TEST(average_without_convolution_conserves_flux)
{
  for (int kind = LINEAR; kind <= UNEVEN; kind++) {
    assert_close(largest_error(kind, 0.01, 0.05, 0, 0, 6e-5, 1), 0, 1e-5);
    /* pixels narrower than the spectrum's */
    assert_close(largest_error(kind, 0.1, 0.5, 0, 0, 1e-5, 1), 0, 2e-5);
    /* no convolution at one end of the arm only */
    assert_close(largest_error(kind, 0.05, 0.25, 0, 0.3, 6e-5, 1), 0, 5e-5);
  }
}

/* Each thread has blocks of pixels and of the sum's steps; 1 to 3 of them share 1001 pixels. */
MILL_TEST(threads_change_no_bit)
{
  enum { N_PIX = 1001, N = 9001 };
  static double kernel[N_PIX], wave[N], flux[N], out[3][N_PIX];
  for (int p = 0; p < N_PIX; p++)
    kernel[p] = 0.3 + 0.4 * p / N_PIX;
  for (int i = 0; i < N; i++) {
    wave[i] = 4990 + 0.04 * i;
    flux[i] = 2 + sin(0.37 * i) * cos(0.0021 * i);
  }
  for (int k = 0; k < 3; k++) {
    mill_arm_cut *cut = NULL;
    assert_ok(mill_arm_cut_create(N_PIX, log(5000.0), 6e-5, kernel, &cut));
    assert_ok(mill_arm_cut_prepare(cut, N, wave, 1 + k));
    assert_ok(mill_arm_cut_apply(cut, N, wave, flux, 1 + k, out[k]));
    mill_arm_cut_destroy(cut);
    assert_memory_equal(out[k], out[0], sizeof out[0]);
  }
}

MILL_TEST(refusals)
{
  enum { N_PIX = 20, N = 400 };
  double kernel[N_PIX], wave[N], flux[N], out[N_PIX], low, high;
  mill_arm_cut *cut = NULL;
  for (int p = 0; p < N_PIX; p++)
    kernel[p] = 0.5;
  assert_ok(mill_arm_cut_create(N_PIX, log(5000.0), 6e-5, kernel, &cut));
  mill_arm_cut_range(cut, &low, &high);
  /* five sigma beyond the edges of the outer pixels */
  assert_close(low, 5000 * exp(-3e-5) - 2.5, 1e-9);
  for (int i = 0; i < N; i++) {
    wave[i] = low + 0.01 + i * 0.1;
    flux[i] = 1;
  }
  assert_fails(mill_arm_cut_prepare(cut, N, wave, 1), MILL_ERR_INPUT, "do not cover");
  for (int i = 0; i < N; i++)
    wave[i] -= 1;
  assert_ok(mill_arm_cut_prepare(cut, N, wave, 1));
  assert_ok(mill_arm_cut_apply(cut, N, wave, flux, 1, out));
  for (int p = 0; p < N_PIX; p++)
    assert_close(out[p], 1, 1e-6);
  flux[50] = INFINITY;
  assert_fails(mill_arm_cut_apply(cut, N, wave, flux, 1, out), MILL_ERR_INPUT, "flux is inf");
  mill_arm_cut_destroy(cut);
  mill_arm_cut_destroy(NULL);
}

MILL_TEST_MAIN(NULL, NULL)
