/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/catalog/star_table.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "kernels/data/settings.h"
#include "src/system/regular_file.h"

void mill_star_table_names(const mill_library *lib, int i_par, const char *name[2])
{
  name[0] = i_par == MILL_PAR_VRAD ? "VRAD" : i_par == MILL_PAR_VSINI ? "VSINI" : NULL;
  name[1] = NULL;
  if (i_par < MILL_PAR_LABEL0)
    return;
  const mill_label *label = &lib->label[i_par - MILL_PAR_LABEL0];
  name[0] = label->column;
  if (strcasecmp(label->name, label->column) != 0)
    name[1] = label->name;
}

int mill_star_table_is_hdf5(const char *path, const char *what, int *is_hdf5)
{
  int fd;
  char first[4] = "";
  MILL_CHECK(mill_regular_open(path, what, MILL_ERR_CONFIG, &fd));
  *is_hdf5 =
      read(fd, first, sizeof first) == sizeof first && memcmp(first, "\x89HDF", sizeof first) == 0;
  close(fd);
  return MILL_OK;
}

int mill_star_table_code(int err, int is_hdf5, const char *key)
{
  mill_error_kept kept;
  if (err != MILL_ERR_INPUT && !(err == MILL_ERR_OUTPUT && is_hdf5))
    return err;
  mill_error_save(err, &kept);
  return MILL_ERROR(MILL_ERR_CONFIG, "%s: %s", key, kept.message);
}

int mill_star_table_has(mill_fits_file *file, int i_hdu, const char *name)
{
  char template[FLEN_VALUE];
  int number = 0, status = 0;
  if (!name || mill_fits_file_move(file, i_hdu) != MILL_OK)
    return 0;
  snprintf(template, sizeof template, "%s", name);
  fits_get_colnum(file->fptr, CASEINSEN, template, &number, &status);
  if (status != 0)
    fits_clear_errmsg();
  return status == 0;
}
