#include "kernels/cuda/cublas.h"

#include <dlfcn.h>
#include <stdio.h>

#include "kernels/base/error.h"

/** Open a library of the toolkit, which stays; only main versions differ in what functions take. */
static int open_library(const char *stem, int version, char name[32], void **out)
{
  static const char *const folder[] = {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"};
  int err = MILL_OK;
  *out = NULL;
  snprintf(name, 32, "lib%s.so.%d", stem, version);
  for (const char *where : folder) {
    char path[96];
    snprintf(path, sizeof path, "%s%s", where, name);
    if ((*out = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
      break;
  }
  if (!*out)
    MILL_FAIL(MILL_ERR_CONFIG,
              "%s is not here: it comes with the CUDA toolkit; put its folder into "
              "LD_LIBRARY_PATH, or use --backend cpu",
              name);
done:
  return err;
}

template <typename function> static int find(void *library, const char *name, function *out)
{
  *out = (function)dlsym(library, name);
  return *out != NULL;
}

int mill_cublas_load(const mill_cublas **out)
{
  static mill_cublas cublas;
  static int is_loaded;
  int err = MILL_OK;
  char name[32];
  void *library = NULL;
  if (!is_loaded) {
    MILL_TRY(open_library("cublas", CUBLAS_VER_MAJOR, name, &library));
    if (!find(library, "cublasCreate_v2", &cublas.create) ||
        !find(library, "cublasDestroy_v2", &cublas.destroy) ||
        !find(library, "cublasSetStream_v2", &cublas.set_stream) ||
        !find(library, "cublasGemmEx", &cublas.gemm) ||
        !find(library, "cublasDgemm_v2", &cublas.dgemm) ||
        !find(library, "cublasDsyrk_v2", &cublas.dsyrk))
      MILL_FAIL(MILL_ERR_CONFIG, "%s lacks a function that training calls: %s", name, dlerror());
    is_loaded = 1;
  }
  *out = &cublas;
done:
  return err;
}

int mill_cusolver_load(const mill_cusolver **out)
{
  static mill_cusolver cusolver;
  static int is_loaded;
  int err = MILL_OK;
  char name[32];
  void *library = NULL;
  if (!is_loaded) {
    MILL_TRY(open_library("cusolver", CUSOLVER_VER_MAJOR, name, &library));
    if (!find(library, "cusolverDnCreate", &cusolver.create) ||
        !find(library, "cusolverDnDestroy", &cusolver.destroy) ||
        !find(library, "cusolverDnSetStream", &cusolver.set_stream) ||
        !find(library, "cusolverDnDsyevdx_bufferSize", &cusolver.dsyevdx_size) ||
        !find(library, "cusolverDnDsyevdx", &cusolver.dsyevdx))
      MILL_FAIL(MILL_ERR_CONFIG, "%s lacks a function that training calls: %s", name, dlerror());
    is_loaded = 1;
  }
  *out = &cusolver;
done:
  return err;
}
