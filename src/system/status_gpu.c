/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/status_gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Declarations of nvml.h, whose binary interface is stable. */
typedef struct nvml_device *nvml_device;
typedef struct nvml_utilization {
  unsigned gpu, memory;
} nvml_utilization;
typedef struct nvml_memory {
  unsigned long long total, free, used;
} nvml_memory;
typedef struct nvml_pci {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
} nvml_pci;
enum { NVML_SUCCESS = 0, NVML_MEMORY_ERROR_UNCORRECTED = 1, NVML_VOLATILE_ECC = 0 };

static struct {
  int usable;
  int (*count)(unsigned *);
  int (*driver)(char *, unsigned);
  int (*by_index)(unsigned, nvml_device *);
  int (*name)(nvml_device, char *, unsigned);
  int (*pci)(nvml_device, nvml_pci *);
  int (*memory)(nvml_device, nvml_memory *);
  int (*utilization)(nvml_device, nvml_utilization *);
  int (*ecc_mode)(nvml_device, int *, int *);
  int (*ecc_errors)(nvml_device, int, int, unsigned long long *);
} nvml;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Look up a function; by memcpy, as C cannot convert an object pointer to a function pointer. */
static int find(void *library, const char *name, void *function)
{
  void *address = dlsym(library, name);
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

/* Load the library NVML and find its functions; nvml.usable stays 0 if a function is missing. */
static void load(void)
{
  int (*start)(void) = NULL;
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return;
  if (find(library, "nvmlInit_v2", &start) && find(library, "nvmlDeviceGetCount_v2", &nvml.count) &&
      find(library, "nvmlSystemGetDriverVersion", &nvml.driver) &&
      find(library, "nvmlDeviceGetHandleByIndex_v2", &nvml.by_index) &&
      find(library, "nvmlDeviceGetName", &nvml.name) &&
      find(library, "nvmlDeviceGetPciInfo_v3", &nvml.pci) &&
      find(library, "nvmlDeviceGetMemoryInfo", &nvml.memory) &&
      find(library, "nvmlDeviceGetUtilizationRates", &nvml.utilization) &&
      find(library, "nvmlDeviceGetEccMode", &nvml.ecc_mode) &&
      find(library, "nvmlDeviceGetTotalEccErrors", &nvml.ecc_errors))
    nvml.usable = start() == NVML_SUCCESS;
  if (!nvml.usable)
    dlclose(library);
}

static int is_usable(void)
{
  return pthread_once(&once, load) == 0 && nvml.usable;
}

int mill_gpu_count(void)
{
  unsigned n = 0;
  return is_usable() && nvml.count(&n) == NVML_SUCCESS ? (int)n : -1;
}

void mill_gpu_driver(char out[80])
{
  if (!is_usable() || nvml.driver(out, 80) != NVML_SUCCESS)
    out[0] = '\0';
}

int mill_gpu_read(int i, mill_gpu *gpu)
{
  nvml_device device = NULL;
  nvml_memory memory;
  nvml_utilization used;
  nvml_pci pci;
  int mode = 0, pending = 0;
  unsigned long long n_error = 0;
  *gpu = (mill_gpu){.percent = -1, .ecc = -1, .ecc_uncorrected = -1};
  if (i < 0 || !is_usable() || nvml.by_index((unsigned)i, &device) != NVML_SUCCESS)
    return 0;
  memset(&pci, 0, sizeof pci);
  if (nvml.name(device, gpu->name, sizeof gpu->name) != NVML_SUCCESS)
    gpu->name[0] = '\0';
  if (nvml.pci(device, &pci) == NVML_SUCCESS)
    memcpy(gpu->bus_id, pci.bus_id, sizeof gpu->bus_id - 1);
  if (nvml.memory(device, &memory) == NVML_SUCCESS) {
    gpu->total = (int64_t)memory.total;
    gpu->used = (int64_t)memory.used;
  }
  if (nvml.utilization(device, &used) == NVML_SUCCESS)
    gpu->percent = (int)used.gpu;
  if (nvml.ecc_mode(device, &mode, &pending) == NVML_SUCCESS)
    gpu->ecc = mode != 0;
  if (gpu->ecc == 1 && nvml.ecc_errors(device, NVML_MEMORY_ERROR_UNCORRECTED, NVML_VOLATILE_ECC,
                                       &n_error) == NVML_SUCCESS)
    gpu->ecc_uncorrected = (int64_t)n_error;
  return 1;
}

/* Are two PCI addresses equal?  CUDA writes the domain with four digits, NVML with eight. */
static int same_bus(const char *a, const char *b)
{
  const char *rest_a = strchr(a, ':'), *rest_b = strchr(b, ':');
  return rest_a && rest_b && strcasecmp(rest_a, rest_b) == 0 &&
         strtol(a, NULL, 16) == strtol(b, NULL, 16);
}

int mill_gpu_find(const char *bus_id)
{
  const int n = mill_gpu_count();
  mill_gpu gpu;
  for (int i = 0; i < n; i++)
    if (mill_gpu_read(i, &gpu) && same_bus(gpu.bus_id, bus_id))
      return i;
  return -1;
}
