#include "io/export/rvtab.h"

#include <stdio.h>
#include <string.h>

#include "io/export/carried.h"
#include "io/export/out_columns.h"
#include "kernels/base/error.h"

/* What an rvtab is made of. */
typedef struct rvtab {
  mill_export_source *source;
  const mill_product *product;
  const char *what;
  int lo, hi; /* inputs */
  mill_out_table *table;
  fitsfile *out;
  mill_fits_file *input; /* of lo, where it is the only one; NULL: none */
} rvtab;

static int write_block(rvtab *tab, int64_t at, int64_t n, char *row, LONGLONG *n_written)
{
  int status = 0;
  int64_t n_kept = 0;
  MILL_CHECK(mill_export_read(tab->source, at, n));
  for (int64_t k = 0; k < n; k++)
    if (tab->source->kept[at + k])
      mill_out_pack(tab->table, tab->source, k, row + (size_t)n_kept++ * tab->table->row_size);
  if (n_kept > 0)
    fits_write_tblbytes(tab->out, *n_written + 1, 1, n_kept * (LONGLONG)tab->table->row_size,
                        (unsigned char *)row, &status);
  MILL_CHECK_PRODUCT(tab->product, status);
  *n_written += n_kept;
  return MILL_OK;
}

static int write_rvtab(rvtab *tab)
{
  int err = MILL_OK;
  char *row = NULL;
  LONGLONG n_written = 0;
  const mill_export_source *source = tab->source;
  MILL_TRY(mill_out_create(tab->table, "RVTAB", tab->product, tab->out));
  MILL_TRY(mill_alloc_raw((size_t)source->block_rows, tab->table->row_size, (void **)&row));
  for (int f = tab->lo; f < tab->hi; f++) {
    const int64_t end = source->row_start[f] + source->n_row_of[f];
    for (int64_t at = source->row_start[f]; at < end; at += source->block_rows)
      MILL_TRY(write_block(tab, at, end - at < source->block_rows ? end - at : source->block_rows,
                           row, &n_written));
  }
done:
  mill_free(row);
  return err;
}

/* The rows of one input in a table that is in step with FIBERMAP, or of EXP_FIBERMAP. */
static int carry_one(rvtab *tab, mill_fits_file *input, int f, const char *name, int *n_carried)
{
  int err = MILL_OK, i_hdu = -1, i_map = -1;
  mill_carried carried = {0};
  MILL_TRY(mill_fits_file_find(input, name, &i_hdu));
  MILL_TRY(mill_fits_file_find(input, "FIBERMAP", &i_map));
  if (i_hdu < 0 || i_map < 0 || input->guard->hdu[i_hdu].kind != MILL_FITS_TABLE ||
      (strcmp(name, "EXP_FIBERMAP") != 0 &&
       input->guard->hdu[i_hdu].axis[1] != input->guard->hdu[i_map].axis[1]))
    goto done;
  MILL_TRY(mill_carried_find(tab->source, f, 0, &carried));
  if (strcmp(name, "FIBERMAP") == 0)
    MILL_TRY(mill_carried_check(input, &carried));
  if (strcmp(name, "EXP_FIBERMAP") == 0)
    MILL_TRY(
        mill_carried_exposures(input, i_hdu, *n_carried == 0, &carried, tab->product, tab->out));
  else
    MILL_TRY(mill_carried_rows(input, i_hdu, *n_carried == 0, carried.n, carried.fits_row,
                               tab->product, tab->out));
  ++*n_carried;
done:
  mill_carried_clear(&carried);
  return err;
}

/* One table of all inputs; where some of them lack it, its rows would be in step with nothing. */
static int carry(rvtab *tab, const char *name)
{
  int err = MILL_OK, n_carried = 0, n_input = 0;
  mill_fits_file *opened = NULL;
  for (int f = tab->lo; f < tab->hi; f++) {
    mill_fits_file *input = tab->input;
    if (tab->hi - tab->lo > 1 && tab->source->n_row_of[f] == 0)
      continue; /* also one that could not be read */
    MILL_TRY(mill_export_go_on());
    if (!input)
      MILL_TRY(mill_carried_open(tab->source, f, &opened));
    input = input ? input : opened;
    n_input++;
    if (input)
      MILL_TRY(carry_one(tab, input, f, name, &n_carried));
    if (n_carried > 0 && n_carried < n_input) {
      char path[MILL_EXPORT_PATH];
      MILL_TRY(mill_export_text(&tab->source->input, f, path, sizeof path));
      MILL_FAIL(MILL_ERR_INPUT,
                "%s: has no %s, unlike files before it: export one file for each input, without "
                "--one, or with --no-fibermap",
                path, name);
    }
    mill_fits_file_close(opened);
    opened = NULL;
  }
done:
  mill_fits_file_close(opened);
  return err;
}

int mill_rvtab_write(mill_export_source *source, int lo, int hi, int has_fibermap, const char *what,
                     const mill_product *product)
{
  int err = MILL_OK, ignored = 0;
  static const char *const table[] = {"FIBERMAP", "SCORES", "GAIA", "EXP_FIBERMAP"};
  rvtab tab = {.source = source, .product = product, .what = what, .lo = lo, .hi = hi};
  const int is_one = hi - lo == 1;
  MILL_TRY(MILL_ALLOC(1, &tab.table));
  MILL_TRY(mill_out_rvtab(source, tab.table));
  if (is_one && has_fibermap)
    MILL_TRY(mill_carried_open(source, lo, &tab.input));
  MILL_TRY(mill_product_fits(product, &tab.out));
  MILL_TRY(mill_carried_header(source, is_one ? lo : -1, tab.input, what, product, tab.out));
  MILL_TRY(write_rvtab(&tab));
  for (size_t i = 0; i < sizeof table / sizeof *table && has_fibermap; i++)
    if (tab.input || !is_one)
      MILL_TRY(carry(&tab, table[i]));
  MILL_TRY(mill_product_fits_close(product, &tab.out));
done:
  mill_fits_file_close(tab.input);
  mill_free(tab.table);
  if (tab.out)
    fits_close_file(tab.out, &ignored);
  return err;
}
