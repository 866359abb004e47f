/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/point_hull.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/libraries/quantile.h"

typedef struct point {
  double x, y;
} point;

static int compare_point(const void *a, const void *b)
{
  const point *p = a, *q = b;
  if (p->x != q->x)
    return p->x > q->x ? 1 : -1;
  return (p->y > q->y) - (p->y < q->y);
}

static double turn(const point *a, const point *b, const point *c)
{
  return (b->x - a->x) * (c->y - a->y) - (b->y - a->y) * (c->x - a->x);
}

/* Corners of the hull of sorted points, counterclockwise (Andrew's monotone chain).
   corner [2 n] */
static int convex_corners(int n, const point *p, point *corner)
{
  int k = 0;
  for (int side = 0, start = 0; side < 2; side++) {
    for (int i = 0; i < n; i++) {
      const point *next = &p[side ? n - 1 - i : i];
      while (k - start >= 2 && turn(&corner[k - 2], &corner[k - 1], next) <= 0)
        k--;
      corner[k++] = *next;
    }
    start = --k; /* the last point of a side is the first of the next one */
  }
  return k;
}

/* Distance to the third nearest other point. */
static double loneliness(int n, const point *p, int i)
{
  double near[3] = {INFINITY, INFINITY, INFINITY};
  for (int j = 0; j < n; j++) {
    double d = j == i ? INFINITY : hypot(p[j].x - p[i].x, p[j].y - p[i].y);
    for (int k = 0; k < 3; k++)
      if (d < near[k]) {
        const double swap = near[k];
        near[k] = d;
        d = swap;
      }
  }
  return near[2];
}

int mill_hull_of_points(int n, const double *x, int all, int *n_facet, double **facet)
{
  int err = MILL_OK;
  point *p = NULL, *corner = NULL;
  double *lonely = NULL, *sorted = NULL;
  *facet = NULL;
  if (n < 3)
    MILL_FAIL(MILL_ERR_INPUT, "a hull of %d points; at least 3 are needed", n);
  MILL_TRY(MILL_ALLOC(n, &p));
  MILL_TRY(MILL_ALLOC(2 * n, &corner));
  MILL_TRY(MILL_ALLOC(n, &lonely));
  MILL_TRY(MILL_ALLOC(n, &sorted));
  for (int i = 0; i < n; i++)
    p[i] = (point){x[2 * i], x[2 * i + 1]};
  for (int i = 0; i < n; i++)
    sorted[i] = lonely[i] = all ? 0 : loneliness(n, p, i);
  /* a lone point would open a hull over labels that nothing is known of */
  const double limit = fmax(4 * mill_median((size_t)n, sorted), 0.3);
  int n_left = 0;
  for (int i = 0; i < n; i++)
    if (all || lonely[i] <= limit || n == 3)
      p[n_left++] = p[i];
  qsort(p, (size_t)n_left, sizeof *p, compare_point);
  const int n_corner = n_left < 3 ? 0 : convex_corners(n_left, p, corner);
  if (n_corner < 3)
    MILL_FAIL(MILL_ERR_INPUT, "%d points of which no hull can be made: they lie on a line or apart",
              n);
  MILL_TRY(MILL_ALLOC(3 * n_corner, facet));
  for (int i = 0; i < n_corner; i++) {
    const point *a = &corner[i], *b = &corner[(i + 1) % n_corner];
    const double length = hypot(b->x - a->x, b->y - a->y);
    double *f = *facet + 3 * i;
    f[0] = (b->y - a->y) / length;
    f[1] = -(b->x - a->x) / length;
    f[2] = -(f[0] * a->x + f[1] * a->y);
  }
  *n_facet = n_corner;
done:
  MILL_FREE(p, corner, lonely, sorted);
  return err;
}
