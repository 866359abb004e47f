/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/whole_hull.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"

#ifdef MILL_HAVE_QHULL

#include <libqhull_r/qhull_ra.h>

/* qhull's facets, whose normals have unit length and point outwards, as ours. */
static int take_facets(qhT *qh, int n_label, int *n_facet, double **facet)
{
  facetT *f;
  const size_t width = (size_t)n_label + 1;
  *n_facet = 0;
  MILL_CHECK(MILL_ALLOC((size_t)qh->num_facets * width, facet));
  for (f = qh->facet_list; f && f->next; f = f->next) {
    double *to = *facet + (size_t)(*n_facet)++ * width;
    for (int l = 0; l < n_label; l++)
      to[l] = f->normal[l];
    to[n_label] = f->offset;
  }
  return MILL_OK;
}

/* Points on a facet lie within rounding of it, on either side: it moves so that none is outside. */
static void hold_all(int n, int n_label, const double *x, int n_facet, double *facet)
{
  for (int k = 0; k < n_facet; k++) {
    double *f = facet + (size_t)k * ((size_t)n_label + 1), most = 0;
    for (int i = 0; i < n; i++) {
      double s = f[n_label];
      for (int l = 0; l < n_label; l++)
        s += f[l] * x[(size_t)i * (size_t)n_label + (size_t)l];
      most = fmax(most, s);
    }
    f[n_label] -= most;
  }
}

int mill_whole_hull(int n, int n_label, const double *x, int *n_facet, double **facet)
{
  int err = MILL_OK, n_long, n_byte;
  char command[] = "qhull", *text = NULL;
  double *point = NULL; /* qhull wants them writable */
  size_t size = 0;
  qhT *qh = NULL;
  FILE *said = NULL;
  *facet = NULL;
  MILL_TRY(MILL_ALLOC(1, &qh));
  MILL_TRY(MILL_ALLOC((size_t)n * (size_t)n_label, &point));
  for (size_t i = 0; i < (size_t)n * (size_t)n_label; i++)
    point[i] = x[i];
  said = open_memstream(&text, &size);
  if (!said)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for the messages of qhull");
  qh_zero(qh, said);
  const int code = qh_new_qhull(qh, n_label, n, point, False, command, NULL, said);
  if (code == qh_ERRmem)
    err = MILL_ERROR(MILL_ERR_MEMORY, "no memory for a hull of %d labels", n_label);
  else if (code != 0)
    err = MILL_ERROR(MILL_ERR_INPUT,
                     "no hull of %d labels holds %d models: they are too few or lie in a plane "
                     "(qhull ended with %d)",
                     n_label, n, code);
  else
    err = take_facets(qh, n_label, n_facet, facet);
  qh_freeqhull(qh, !qh_ALL);
  qh_memfreeshort(qh, &n_long, &n_byte);
  MILL_TRY(err);
  hold_all(n, n_label, x, *n_facet, *facet);
done:
  if (said)
    fclose(said);
  free(text);
  MILL_FREE(qh, point);
  return err;
}

#else

int mill_whole_hull(int n, int n_label, const double *x, int *n_facet, double **facet)
{
  (void)n;
  (void)n_label;
  (void)x;
  *n_facet = 0;
  *facet = NULL;
  return MILL_ERROR(MILL_ERR_CONFIG, "a hull of all labels needs qhull, which this starmill was "
                                     "built without (docs/use/install.md); use hulls of pairs");
}

#endif
