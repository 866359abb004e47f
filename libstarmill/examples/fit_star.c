/* SPDX-License-Identifier: BSD-3-Clause */
/* Fit one spectrum and print its parameters: fit_star LIBRARY.h5 SPECTRUM.txt [RESOLVING_POWER].
 * Each line of the text file has a wavelength (Angstrom, vacuum), a flux and its error.
 * cc fit_star.c $(pkg-config --cflags --libs starmill) */
#include <starmill/starmill.h>
#include <stdio.h>
enum { MOST = 20000 };
static double wave[MOST], theta[32];
static float flux[MOST], ivar[MOST];
static char settings[100], name[64];

int main(int argc, char **argv)
{
  starmill_error error = {0, ""};
  starmill_library *library = NULL;
  starmill_star *star = NULL;
  starmill_table *table = NULL;
  starmill_column value, sigma;
  starmill_parameter par;
  double sd, m2ll;
  int n = 0;
  FILE *in = argc > 2 ? fopen(argv[2], "r") : NULL;
  if (!in)
    return 2;
  while (n < MOST && fscanf(in, "%lf %f %lf", &wave[n], &flux[n], &sd) == 3)
    ivar[n++] = sd > 0 ? (float)(1 / (sd * sd)) : 0; /* 0: a bad pixel */
  fclose(in);
  snprintf(settings, sizeof settings, "resolving_power: %.20s", argc > 3 ? argv[3] : "2000");
  starmill_spectrum spectrum = {.n_pix = n, .wave = wave, .flux = flux, .ivar = ivar};
  if (starmill_library_open(argv[1], settings, &library, &error) ||
      starmill_star_create(library, &spectrum, 1, &star, &error) ||
      starmill_fit(library, (const starmill_star **)&star, 1, NULL, 0, &table, &error) ||
      starmill_table_theta(library, table, 0, theta, &error) ||
      starmill_minus2loglike(library, star, 1, theta, &m2ll, NULL, NULL, NULL, &error))
    fprintf(stderr, "%s\n", error.message);
  for (int j = 0; error.code == 0 && j < starmill_library_n_par(library); j++) {
    starmill_library_parameter(library, j, &par, NULL);
    snprintf(name, sizeof name, "%s_ERR", par.column);
    if (!starmill_table_column(table, par.column, &value, &error) &&
        !starmill_table_column(table, name, &sigma, &error))
      printf("%s %.17g +- %.3g %s\n", par.column, *(const double *)value.data,
             *(const double *)sigma.data, par.unit);
  }
  if (error.code == 0)
    printf("-2 ln L %.17g\n", m2ll);
  starmill_table_free(table);
  starmill_star_free(star);
  starmill_library_close(library);
  return error.code;
}
