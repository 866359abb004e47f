/* Labels of models that fill the demo library's range. */
#include "src/libraries/demo_library.h"

#include <math.h>

#include "kernels/base/error.h"
#include "kernels/math/hull.h"
#include "src/line_model/line_model.h"

enum { N_CORNER = 20 };

#define RECURRENCE 1.1673039782614187 /* g^5 = g + 1 */
#define STRETCH    1.1                /* 1 / 22 of the places lie beyond each end of a label */

/* Corners of Teff and log g, of which one is cut off, times those of the other two. */
static void corner(int i, double *label)
{
  static const double from[2] = MILL_DEMO_CUT_FROM, to[2] = MILL_DEMO_CUT_TO;
  const mill_line_label_info *info = mill_line_label_info_of;
  const double low[2] = {info[MILL_LINE_TEFF].min, info[MILL_LINE_LOGG].min};
  const double high[2] = {info[MILL_LINE_TEFF].max, info[MILL_LINE_LOGG].max};
  const double plane[5][2] = {
      {low[0], low[1]}, {low[0], high[1]}, {high[0], high[1]}, {to[0], to[1]}, {from[0], from[1]}};
  label[MILL_LINE_TEFF] = plane[i / 4][0];
  label[MILL_LINE_LOGG] = plane[i / 4][1];
  label[MILL_LINE_FEH] = i & 1 ? info[MILL_LINE_FEH].max : info[MILL_LINE_FEH].min;
  label[MILL_LINE_ALPHA] = i & 2 ? info[MILL_LINE_ALPHA].max : info[MILL_LINE_ALPHA].min;
}

/* Place k of the sequence. 1: inside the hulls, and no corner. */
static int place(const mill_library *frame, int64_t k, double *label)
{
  double x[MILL_MAX_LABEL], step = 1;
  int n_end = 0;
  for (int l = 0; l < MILL_LINE_N_LABEL; l++) {
    double whole;
    const mill_label *about = &frame->label[l];
    const double low = mill_label_map(about, about->min), high = mill_label_map(about, about->max);
    step /= RECURRENCE;
    const double u = 0.5 + STRETCH * (modf(0.5 + (double)k * step, &whole) - 0.5);
    x[l] = low + fmin(fmax(u, 0), 1) * (high - low);
    label[l] = u <= 0 ? about->min : u >= 1 ? about->max : mill_label_unmap(about, x[l]);
    n_end += u <= 0 || u >= 1;
  }
  return n_end < MILL_LINE_N_LABEL && mill_hull_distance(frame->n_hull, frame->hull, x) <= 1e-9;
}

int mill_demo_labels(int n, double *label)
{
  int err = MILL_OK, i = 0;
  mill_library *frame = NULL;
  MILL_TRY(MILL_ALLOC(1, &frame));
  MILL_TRY(mill_demo_library_frame(frame));
  for (; i < n && i < N_CORNER; i++)
    corner(i, label + i * MILL_LINE_N_LABEL);
  for (int64_t k = 1; i < n; k++)
    i += place(frame, k, label + i * MILL_LINE_N_LABEL);
done:
  mill_library_clear(frame);
  mill_free(frame);
  return err;
}
