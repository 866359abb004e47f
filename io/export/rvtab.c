/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/export/rvtab.h"

#include <stdio.h>
#include <string.h>

#include "io/export/out_columns.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"

/* FIBERMAP and the tables with a row for each of its rows, then EXP_FIBERMAP. */
static int carry_tables(mill_fits_file *input, const mill_carried *carried,
                        const mill_product *product)
{
  static const char *const table[] = {"FIBERMAP", "SCORES", "GAIA", "EXP_FIBERMAP"};
  enum { N_TABLE = sizeof table / sizeof *table, EXP_FIBERMAP = N_TABLE - 1 };
  int i_map = -1;
  MILL_CHECK(mill_fits_file_find(input, "FIBERMAP", &i_map));
  for (int i = 0; i < N_TABLE; i++) {
    int i_hdu = -1;
    MILL_CHECK(mill_fits_file_find(input, table[i], &i_hdu));
    const mill_fits_hdu *hdu = input->guard->hdu;
    if (i_hdu < 0 || hdu[i_hdu].kind != MILL_FITS_TABLE)
      continue;
    if (i == EXP_FIBERMAP)
      MILL_CHECK(mill_carried_exposures(input, i_hdu, carried, product));
    else if (hdu[i_hdu].axis[1] == hdu[i_map].axis[1])
      MILL_CHECK(mill_carried_rows(input, i_hdu, carried->n, carried->fits_row, product));
  }
  return MILL_OK;
}

int mill_rvtab_write(mill_export_source *source, int i_file, mill_fits_file *input,
                     const mill_carried *carried, const mill_product *product)
{
  int err = MILL_OK;
  mill_out_table *table = NULL;
  const int64_t lo = mill_export_row_start(source, i_file),
                hi = lo + mill_export_n_row(source, i_file);
  MILL_TRY(MILL_ALLOC(1, &table));
  MILL_TRY(mill_out_rvtab(source, table));
  MILL_TRY(mill_out_write(table, "RVTAB", source, lo, hi, product));
  if (input)
    MILL_TRY(carry_tables(input, carried, product));
done:
  mill_free(table);
  return err;
}

/* The inputs, by the number that FILE has. */
static int write_files(const mill_export_source *source, const mill_product *product)
{
  static const int which[] = {MILL_INPUT_PATH, MILL_INPUT_FORMAT, MILL_INPUT_FRAME,
                              MILL_INPUT_REDROCK, MILL_INPUT_ERROR};
  enum { N = sizeof which / sizeof *which };
  int err = MILL_OK, status = 0;
  const mill_recorded_inputs *inputs = &source->inputs;
  char *column[N], *form[N], form_text[N][24], *row = NULL;
  size_t width = 0;
  for (int i = 0; i < N; i++) {
    const size_t n_byte = inputs->text[which[i]].n_byte;
    snprintf(form_text[i], sizeof form_text[i], "%zuA", n_byte);
    column[i] = (char *)(uintptr_t)mill_input_text_name(which[i]);
    form[i] = form_text[i];
    width += n_byte;
  }
  fits_create_tbl(product->fits, BINARY_TBL, 0, N, column, form, NULL, "FILES", &status);
  MILL_TRY_PRODUCT(product, status);
  MILL_TRY(mill_alloc_bytes(1, width, (void **)&row));
  for (int f = 0; f < inputs->n_file; f++) {
    char *at = row;
    memset(row, ' ', width);
    for (int i = 0; i < N; i++) {
      const mill_ph5_texts *text = &inputs->text[which[i]];
      const size_t n = strnlen(text->text + (size_t)f * text->n_byte, text->n_byte);
      memcpy(at, text->text + (size_t)f * text->n_byte, n);
      mill_product_printable(at, n);
      at += text->n_byte;
    }
    fits_write_tblbytes(product->fits, f + 1, 1, (LONGLONG)width, (unsigned char *)row, &status);
    MILL_TRY_PRODUCT(product, status);
  }
done:
  mill_free(row);
  return err;
}

int mill_whole_write(mill_export_source *source, const mill_product *product)
{
  int err = MILL_OK;
  mill_out_table *table = NULL;
  MILL_TRY(MILL_ALLOC(1, &table));
  MILL_TRY(mill_out_whole(source, table));
  MILL_TRY(mill_out_write(table, "STARMILL", source, 0, source->table.n_row, product));
  MILL_TRY(write_files(source, product));
done:
  mill_free(table);
  return err;
}
