#include "kernels/cuda/cublas.h"

#include <dlfcn.h>
#include <stdio.h>

#include "kernels/base/error.h"

/** Only main versions differ in what the functions take. */
static void *open_library(char name[32])
{
  static const char *const folder[] = {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"};
  void *library = NULL;
  snprintf(name, 32, "libcublas.so.%d", CUBLAS_VER_MAJOR);
  for (const char *where : folder) {
    char path[96];
    snprintf(path, sizeof path, "%s%s", where, name);
    if ((library = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
      break;
  }
  return library;
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
  if (!is_loaded) {
    void *library = open_library(name); /* stays */
    if (!library)
      MILL_FAIL(MILL_ERR_CONFIG,
                "%s is not here: it comes with the CUDA toolkit; put its folder into "
                "LD_LIBRARY_PATH, or use --backend cpu",
                name);
    if (!find(library, "cublasCreate_v2", &cublas.create) ||
        !find(library, "cublasDestroy_v2", &cublas.destroy) ||
        !find(library, "cublasSetStream_v2", &cublas.set_stream) ||
        !find(library, "cublasGemmEx", &cublas.gemm))
      MILL_FAIL(MILL_ERR_CONFIG, "%s lacks a function that training calls: %s", name, dlerror());
    is_loaded = 1;
  }
  *out = &cublas;
done:
  return err;
}
