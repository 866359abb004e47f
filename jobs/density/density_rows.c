#include "jobs/density/density_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "kernels/base/error.h"
#include "kernels/particles/sphere.h"

enum { BLOCK_ROWS = 1 << 20 };

/* The columns of a sky map where they are not given: those of the first catalog. */
static int find_sky(mill_density_rows *rows)
{
  int found = 0;
  static const char *const pair[][2] = {{"TARGET_DEC", "TARGET_RA"}, {"DEC", "RA"}, {"dec", "ra"}};
  const char *path = rows->options->input[0];
  for (size_t k = 0; k < sizeof pair / sizeof *pair && !found; k++) {
    MILL_CHECK(mill_row_reader_has(path, 2, pair[k], &found));
    rows->name[0] = pair[k][0];
    rows->name[1] = pair[k][1];
  }
  if (!found)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has no columns TARGET_RA and TARGET_DEC, nor RA and DEC: name those of "
                      "right ascension and declination by --x and --y",
                      path);
  return MILL_OK;
}

int mill_density_rows_open(const mill_density_options *o, mill_density_rows *rows)
{
  int err = MILL_OK;
  memset(rows, 0, sizeof *rows);
  rows->options = o;
  rows->name[0] = o->column[1];
  rows->name[1] = o->column[0];
  if (!rows->name[0])
    MILL_TRY(find_sky(rows));
  for (int a = 0; a < 2; a++)
    MILL_TRY(MILL_ALLOC(BLOCK_ROWS, &rows->value[a]));
  MILL_TRY(MILL_ALLOC(BLOCK_ROWS, &rows->is_good));
done:
  if (err != MILL_OK)
    mill_density_rows_close(rows);
  return err;
}

void mill_density_rows_close(mill_density_rows *rows)
{
  MILL_FREE(rows->value[0], rows->value[1], rows->is_good);
  rows->value[0] = rows->value[1] = NULL;
  rows->is_good = NULL;
}

/* All catalogs must have the units of the first. */
static int take_units(mill_density_rows *rows, const mill_row_reader *reader, int i_input)
{
  const mill_density_options *o = rows->options;
  for (int a = 0; a < 2; a++) {
    const char *unit = mill_row_reader_unit(reader, a);
    if (o->is_sphere && unit[0] && strncasecmp(unit, "deg", 3) != 0)
      return MILL_ERROR(MILL_ERR_INPUT, "%s: %s has the unit %s: a sky map takes degrees",
                        o->input[i_input], rows->name[a], unit);
    if (i_input == 0)
      snprintf(rows->unit[a], sizeof rows->unit[a], "%s", o->is_sphere ? "deg" : unit);
    else if (!o->is_sphere && strcmp(rows->unit[a], unit) != 0)
      return MILL_ERROR(MILL_ERR_INPUT,
                        "%s: %s has the unit '%s', where %s has '%s': one map takes one unit",
                        o->input[i_input], rows->name[a], unit, o->input[0], rows->unit[a]);
  }
  return MILL_OK;
}

/* The rows of a block that are used, to its front. */
static int choose(mill_density_rows *rows, int n)
{
  const mill_density_options *o = rows->options;
  double *y = rows->value[0], *x = rows->value[1];
  int n_used = 0;
  for (int i = 0; i < n; i++) {
    if (!o->all && !rows->is_good[i]) {
      rows->n_not_good++;
      continue;
    }
    if (!isfinite(x[i]) || !isfinite(y[i]) || (o->is_sphere && fabs(y[i]) > 90)) {
      rows->n_nan++;
      continue;
    }
    const double factor = o->is_sphere ? MILL_PI / 180 : 1;
    x[n_used] = factor * x[i];
    y[n_used++] = factor * y[i];
  }
  rows->n_used += n_used;
  return n_used;
}

int mill_density_rows_pass(mill_density_rows *rows, mill_density_take take, void *context)
{
  int err = MILL_OK;
  const mill_density_options *o = rows->options;
  mill_row_reader *reader = NULL;
  rows->n_row = rows->n_used = rows->n_not_good = rows->n_nan = 0;
  for (int i = 0; i < o->n_input; i++) {
    MILL_TRY(mill_row_reader_open(o->input[i], 2, rows->name, &reader));
    MILL_TRY(take_units(rows, reader, i));
    rows->knows_good = rows->knows_good || mill_row_reader_knows_good(reader);
    const int64_t n_row = mill_row_reader_n_row(reader);
    for (int64_t first = 0; first < n_row; first += BLOCK_ROWS) {
      const int n = (int)(n_row - first < BLOCK_ROWS ? n_row - first : BLOCK_ROWS);
      MILL_TRY(mill_row_reader_read(reader, first, n, rows->value, rows->is_good));
      const int n_used = choose(rows, n);
      const double *const x[2] = {rows->value[0], rows->value[1]};
      if (n_used > 0)
        MILL_TRY(take(context, n_used, x));
    }
    rows->n_row += n_row;
    mill_row_reader_close(reader);
    reader = NULL;
  }
done:
  mill_row_reader_close(reader);
  return err;
}
