/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/cublas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base/error.h"

/** Open a CUDA toolkit library of this major version (the build's); set `name` to its file name. */
static int open_library(const char *stem, int version, char name[32], void **out)
{
  static const char *const folder[] = {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"};
  *out = NULL;
  snprintf(name, 32, "lib%s.so.%d", stem, version);
  for (const char *where : folder) {
    char path[96];
    snprintf(path, sizeof path, "%s%s", where, name);
    if ((*out = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
      break;
  }
  if (!*out)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "%s is not found: it comes with the CUDA toolkit; add its folder to "
                      "LD_LIBRARY_PATH, or use --backend cpu",
                      name);
  return MILL_OK;
}

/** Name of a library's function, and the pointer to set. */
struct symbol {
  const char *name;
  void *to;
};

/** Open a library, which stays open, and set the pointers to its functions. */
template <size_t n> static int load(const char *stem, int version, const symbol (&all)[n])
{
  char name[32];
  void *library = NULL;
  MILL_CHECK(open_library(stem, version, name, &library));
  for (const symbol &one : all) {
    void *found = dlsym(library, one.name);
    if (!found)
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "%s lacks a function that training calls: %s; use --backend cpu", name,
                        dlerror());
    memcpy(one.to, &found, sizeof found);
  }
  return MILL_OK;
}

int mill_cublas_load(const mill_cublas **out)
{
  static mill_cublas cublas;
  static int is_loaded;
  static const symbol all[] = {
      {"cublasCreate_v2", &cublas.create},        {"cublasDestroy_v2", &cublas.destroy},
      {"cublasSetStream_v2", &cublas.set_stream}, {"cublasGemmEx", &cublas.gemm},
      {"cublasDgemm_v2", &cublas.dgemm},          {"cublasDsyrk_v2", &cublas.dsyrk}};
  if (!is_loaded)
    MILL_CHECK(load("cublas", CUBLAS_VER_MAJOR, all));
  is_loaded = 1;
  *out = &cublas;
  return MILL_OK;
}

int mill_cusolver_load(const mill_cusolver **out)
{
  static mill_cusolver cusolver;
  static int is_loaded;
  static const symbol all[] = {{"cusolverDnCreate", &cusolver.create},
                               {"cusolverDnDestroy", &cusolver.destroy},
                               {"cusolverDnSetStream", &cusolver.set_stream},
                               {"cusolverDnDsyevdx_bufferSize", &cusolver.dsyevdx_size},
                               {"cusolverDnDsyevdx", &cusolver.dsyevdx}};
  if (!is_loaded)
    MILL_CHECK(load("cusolver", CUSOLVER_VER_MAJOR, all));
  is_loaded = 1;
  *out = &cusolver;
  return MILL_OK;
}
