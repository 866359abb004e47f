#include "src/libraries/library_make.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/math/hull.h"

/* What is known of the labels that synthetic libraries use. */
static const struct {
  const char *name, *column, *unit;
  double scale;
} known_label[] = {{"teff", "TEFF", "K", 60},
                   {"logg", "LOGG", "log(cm s**-2)", 0.15},
                   {"feh", "FEH", "dex", 0.1},
                   {"alpha", "ALPHAFE", "dex", 0.05}};

void mill_label_describe(mill_label *label)
{
  for (size_t i = 0; i < sizeof known_label / sizeof *known_label; i++)
    if (strcmp(label->name, known_label[i].name) == 0) {
      snprintf(label->column, sizeof label->column, "%s", known_label[i].column);
      snprintf(label->unit, sizeof label->unit, "%s", known_label[i].unit);
      label->scale = known_label[i].scale;
      return;
    }
  for (size_t i = 0; label->name[i]; i++) {
    const unsigned char c = (unsigned char)label->name[i];
    label->column[i] = (char)(isalnum(c) ? toupper(c) : '_');
  }
}

/* Quasi-random points in mapped labels inside all hulls: the additive recurrence
   x_j = frac(1/2 + i / phi^(j+1)), phi the positive root of x^(n+1) = x + 1 (the golden ratio for
   one dimension), which fills a box evenly for any number of dimensions and needs no table; points
   outside are passed over. */
int mill_library_make_guess(int n_guess, const double *x_min, const double *x_max,
                            mill_library *lib)
{
  int err = MILL_OK;
  const int n_label = lib->n_label;
  double phi = 1.5, alpha[MILL_MAX_LABEL], x[MILL_MAX_LABEL];
  for (int i = 0; i < 60; i++) {
    double power = 1; /* phi^n_label */
    for (int j = 0; j < n_label; j++)
      power *= phi;
    phi -= (power * phi - phi - 1) / ((n_label + 1) * power - 1);
  }
  for (int j = 0; j < n_label; j++)
    alpha[j] = (j == 0 ? 1 : alpha[j - 1]) / phi;
  lib->n_guess = n_guess;
  MILL_TRY(MILL_ALLOC((size_t)n_guess * (size_t)n_label, &lib->guess_label));
  int n_found = 0;
  const int64_t max_try = 1000000 + (int64_t)1000 * n_guess;
  for (int64_t i = 1; n_found < n_guess; i++) {
    if (i > max_try)
      MILL_FAIL(MILL_ERR_LIBRARY,
                "only %d of %d templates for the initial guess were found inside the hulls, which "
                "fill too little of the labels' ranges",
                n_found, n_guess);
    double *label = lib->guess_label + (size_t)n_found * (size_t)n_label;
    for (int j = 0; j < n_label; j++) {
      const double u = 0.5 + (double)i * alpha[j];
      label[j] =
          mill_label_unmap(&lib->label[j], x_min[j] + (x_max[j] - x_min[j]) * (u - floor(u)));
      x[j] = mill_label_map(&lib->label[j], label[j]); /* as a reader of the labels sees them */
    }
    if (mill_hull_distance(lib->n_hull, lib->hull, x) <= 0)
      n_found++;
  }
  lib->n_guess_vsini = 2;
  lib->guess_vsini_km_s[0] = 0;
  lib->guess_vsini_km_s[1] = 100;
done:
  return err;
}
