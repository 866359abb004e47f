/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/doctor/version.h"

#include <mpi.h>
#include <stdarg.h>
#include <string.h>

#include <fitsio.h>
#include <hdf5.h>
#ifdef MILL_HAVE_OPENBLAS
#include <cblas.h>
#endif

#include "kernels/base/error.h"
#include "src/system/version.h"

static void put(mill_version_row *row, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void put(mill_version_row *row, const char *name, const char *format, ...)
{
  va_list args;
  row->name = name;
  va_start(args, format);
  vsnprintf(row->text, sizeof row->text, format, args);
  va_end(args);
}

int mill_version_rows(mill_version_row row[MILL_N_VERSION])
{
  int n_mpi = 0;
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  unsigned major = 0, minor = 0, release = 0;
#ifdef MILL_HAVE_OPENBLAS
  const char *blas = openblas_get_config();
#else
  const char *blas = MILL_BLAS_TEXT;
#endif
  if (MPI_Get_library_version(mpi, &n_mpi) != MPI_SUCCESS)
    return MILL_ERROR(MILL_ERR_MPI,
                      "MPI_Get_library_version failed: the MPI installation is broken");
  mpi[strcspn(mpi, "\n")] = '\0'; /* MPICH adds lines about its build */
  for (char *c = mpi; *c; c++)
    *c = *c == '\t' ? ' ' : *c;
  if (H5get_libversion(&major, &minor, &release) < 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "H5get_libversion failed: the HDF5 installation is broken");
  put(&row[0], "starmill", "%s", mill_version());
  put(&row[1], "revision", "%s", mill_version_revision());
  put(&row[2], "compiler", "%s", mill_version_compiler());
  put(&row[3], "MPI", "%s", mpi);
  put(&row[4], "HDF5", "%u.%u.%u", major, minor, release);
  put(&row[5], "CFITSIO", "%d.%d.%d", CFITSIO_MAJOR, CFITSIO_MINOR, CFITSIO_MICRO);
  put(&row[6], "BLAS", "%s", blas);
  put(&row[7], "CUDA", "%s", MILL_CUDA_TEXT);
  return MILL_OK;
}

int mill_version_print(FILE *out)
{
  mill_version_row row[MILL_N_VERSION];
  MILL_CHECK(mill_version_rows(row));
  for (int i = 0; i < MILL_N_VERSION; i++)
    fprintf(out, i == 0 ? "%s %s\n" : "%-9s %s\n", row[i].name, row[i].text);
  if (fflush(out) != 0 || ferror(out))
    return MILL_ERROR(MILL_ERR_OUTPUT, "cannot print the version: the output is closed or full");
  return MILL_OK;
}
