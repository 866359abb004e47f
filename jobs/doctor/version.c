#include "jobs/doctor/version.h"

#include <mpi.h>

#include <fitsio.h>
#include <hdf5.h>
#ifdef MILL_HAVE_OPENBLAS
#include <cblas.h>
#endif

#include "kernels/base/error.h"
#include "src/system/version.h"

int mill_version_print(FILE *out)
{
  int err = MILL_OK;
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int n_mpi = 0;
  if (MPI_Get_library_version(mpi, &n_mpi) != MPI_SUCCESS)
    MILL_FAIL(MILL_ERR_MPI, "MPI_Get_library_version failed: the MPI installation is broken");
  for (char *c = mpi; *c; c++) {
    if (*c == '\n') { /* MPICH describes its whole build; the first line names it */
      *c = '\0';
      break;
    }
    if (*c == '\t')
      *c = ' ';
  }

  unsigned major = 0, minor = 0, release = 0;
  if (H5get_libversion(&major, &minor, &release) < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "H5get_libversion failed: the HDF5 installation is broken");
#ifdef H5_HAVE_PARALLEL
  const char *parallel = "yes";
#else
  const char *parallel = "no";
#endif

#ifdef MILL_HAVE_OPENBLAS
  const char *blas = openblas_get_config();
#else
  const char *blas = MILL_BLAS_TEXT;
#endif

  const int n =
      fprintf(out,
              "starmill %s\n"
              "revision  %s\n"
              "compiler  %s\n"
              "MPI       %s\n"
              "HDF5      %u.%u.%u (parallel: %s)\n"
              "CFITSIO   %d.%d.%d\n"
              "BLAS      %s\n"
              "CUDA      %s\n",
              mill_version(), mill_version_revision(), mill_version_compiler(), mpi, major, minor,
              release, parallel, CFITSIO_MAJOR, CFITSIO_MINOR, CFITSIO_MICRO, blas, MILL_CUDA_TEXT);
  if (n < 0 || fflush(out) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "cannot print the version: the output is closed or full");
done:
  return err;
}
