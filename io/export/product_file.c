#include "io/export/product_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/hdf5/parallel_hdf5.h"
#include "kernels/base/error.h"
#include "src/system/file_roles.h"

int mill_product_begin(const char *path, mill_product *product)
{
  MILL_CHECK(mill_resolve_links(path, product->path, sizeof product->path));
  MILL_CHECK(mill_lock_take(product->path, &product->lock));
  MILL_CHECK(mill_lock_keeper_start(&product->lock, &product->keeper));
  snprintf(product->temporary, sizeof product->temporary, "%s.tmp", product->path);
  unlink(product->temporary); /* of a job that was killed, as the lock is ours */
  return MILL_OK;
}

static void stop_keeper(mill_product *product)
{
  mill_lock_keeper_stop(product->keeper);
  product->keeper = NULL;
}

int mill_product_commit(mill_product *product)
{
  stop_keeper(product);
  MILL_CHECK(mill_lock_keep(&product->lock));
  MILL_CHECK(mill_ph5_rename(product->temporary, product->path));
  product->temporary[0] = '\0';
  return MILL_OK;
}

void mill_product_end(mill_product *product)
{
  if (product->temporary[0])
    unlink(product->temporary);
  product->temporary[0] = '\0';
  stop_keeper(product);
  mill_lock_release(&product->lock);
}

int mill_product_status(const mill_product *product, int status)
{
  char reason[FLEN_STATUS];
  if (status == 0)
    return MILL_OK;
  fits_get_errstatus(status, reason);
  fits_clear_errmsg();
  return MILL_ERROR(
      MILL_ERR_OUTPUT,
      "%s: cannot be written (CFITSIO %d: %s): make room on its disk or choose another "
      "output",
      product->temporary, status, reason);
}

int mill_product_fits(const mill_product *product, fitsfile **out)
{
  int status = 0;
  fits_create_diskfile(out, product->temporary, &status);
  if (status != 0)
    *out = NULL;
  fits_create_img(*out, BYTE_IMG, 0, NULL, &status);
  MILL_CHECK_PRODUCT(product, status);
  return MILL_OK;
}

int mill_product_fits_close(const mill_product *product, fitsfile **out)
{
  int status = 0, n_hdu = 0;
  fits_get_num_hdus(*out, &n_hdu, &status);
  for (int i = 1; i <= n_hdu; i++) {
    fits_movabs_hdu(*out, i, NULL, &status);
    fits_write_chksum(*out, &status);
  }
  fits_close_file(*out, &status);
  *out = NULL;
  MILL_CHECK_PRODUCT(product, status);
  return MILL_OK;
}

void mill_product_printable(char *text, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (text[i] < ' ' || text[i] > '~')
      text[i] = '?';
}

void mill_product_key(fitsfile *out, const char *key, const char *value, const char *comment,
                      int *status)
{
  char text[4096];
  if (snprintf(text, sizeof text, "%s", value) >= (int)sizeof text)
    memcpy(text + sizeof text - 4, "...", 4);
  mill_product_printable(text, strlen(text));
  for (char *c = text; *c; c++) /* astropy takes a quote before a blank for the end of the value */
    *c = (char)(*c == '\'' ? '"' : *c);
  if (strlen(text) > 68)
    fits_write_key_longwarn(out, status);
  fits_update_key_longstr(out, key, text, comment, status);
}
