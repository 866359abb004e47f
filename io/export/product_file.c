/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/export/product_file.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/fits/fits_file.h"
#include "io/hdf5/parallel_hdf5.h"
#include "kernels/base/error.h"
#include "src/system/file_roles.h"

int mill_product_begin(const char *path, mill_product *product)
{
  int status = 0;
  MILL_CHECK(mill_resolve_links(path, product->path, sizeof product->path));
  MILL_CHECK(mill_lock_take(product->path, &product->lock));
  snprintf(product->temporary, sizeof product->temporary, "%s.tmp", product->path);
  unlink(product->temporary); /* of a job that was killed, as the lock is ours */
  fits_create_diskfile(&product->fits, product->temporary, &status);
  if (status != 0)
    product->fits = NULL;
  fits_create_img(product->fits, BYTE_IMG, 0, NULL, &status);
  MILL_CHECK_PRODUCT(product, status);
  return MILL_OK;
}

int mill_product_commit(mill_product *product)
{
  int status = 0, n_hdu = 0;
  fits_get_num_hdus(product->fits, &n_hdu, &status);
  for (int i = 1; i <= n_hdu; i++) {
    fits_movabs_hdu(product->fits, i, NULL, &status);
    fits_write_chksum(product->fits, &status);
  }
  fits_close_file(product->fits, &status);
  product->fits = NULL;
  MILL_CHECK_PRODUCT(product, status);
  MILL_CHECK(mill_lock_keep(&product->lock));
  MILL_CHECK(mill_ph5_rename(product->temporary, product->path));
  product->temporary[0] = '\0';
  return MILL_OK;
}

void mill_product_end(mill_product *product)
{
  int ignored = 0;
  if (product->fits)
    fits_close_file(product->fits, &ignored);
  if (product->temporary[0])
    unlink(product->temporary);
  mill_lock_release(&product->lock);
  *product = (mill_product){.path = ""};
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

int mill_product_look(const char *path, const char *what, const char *run_id, const char *result,
                      int overwrite, int *state)
{
  struct stat product, of_result;
  mill_fits_file *file = NULL;
  char exported[FLEN_VALUE] = "", run[FLEN_VALUE] = "";
  int status = 0;
  *state = MILL_PRODUCT_ABSENT;
  if (lstat(path, &product) != 0)
    return MILL_OK;
  *state = MILL_PRODUCT_OLDER;
  if (stat(path, &product) == 0 && product.st_size == 0 && overwrite)
    return MILL_OK;
  if (mill_fits_file_open(path, NULL, &file) == MILL_OK) {
    fits_read_key_str(file->fptr, "EXPORTED", exported, NULL, &status);
    fits_read_key_str(file->fptr, "RUNID", run, NULL, &status);
    fits_clear_errmsg();
    mill_fits_file_close(file);
  }
  if (status != 0 || !exported[0])
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s: exists and is not an export of starmill, so --overwrite does not "
                      "replace it: give another name, or remove it yourself",
                      path);
  const int is_ours = strcmp(exported, what) == 0 && strcmp(run, run_id) == 0;
  if (!is_ours && !overwrite)
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s: exists and is the export of another result: give another name or "
                      "--overwrite",
                      path);
  if (is_ours && !overwrite && stat(result, &of_result) == 0 &&
      product.st_mtime >= of_result.st_mtime)
    *state = MILL_PRODUCT_DONE;
  return MILL_OK;
}
