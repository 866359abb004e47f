/* SPDX-License-Identifier: BSD-3-Clause */
/* A tool that NVTX loads by NVTX_INJECTION64_PATH.  It writes the ranges of the domain "starmill"
 * to the file that STARMILL_NVTX_RECORD names, one event a line:
 *
 *   THREAD push NAME | THREAD pop | THREAD name TEXT | domain NAME | problem ... */
#define _GNU_SOURCE /* gettid */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>

enum { MAX_TEXT = 64 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static FILE *record;
static char domain_name[MAX_TEXT], text[MAX_TEXT][MAX_TEXT];
static int n_domain, n_text;

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

static void write_line(const char *what, const char *name)
{
  pthread_mutex_lock(&mutex);
  fprintf(record, "%d %s%s%s\n", (int)gettid(), what, name[0] ? " " : "", name);
  pthread_mutex_unlock(&mutex);
}

static nvtxDomainHandle_t NVTX_API create(const char *name)
{
  snprintf(domain_name, sizeof domain_name, "%s", name);
  pthread_mutex_lock(&mutex);
  fprintf(record, "domain %s\n", name);
  if (n_domain++ > 0)
    fprintf(record, "problem: more than one domain\n");
  pthread_mutex_unlock(&mutex);
  return (nvtxDomainHandle_t)(void *)domain_name;
}

static nvtxStringHandle_t NVTX_API add_text(nvtxDomainHandle_t domain, const char *name)
{
  if ((void *)domain != (void *)domain_name || n_text == MAX_TEXT) {
    write_line("problem: text of another domain:", name);
    return NULL;
  }
  snprintf(text[n_text], sizeof text[n_text], "%s", name);
  return (nvtxStringHandle_t)(void *)text[n_text++];
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event)
{
  if ((void *)domain != (void *)domain_name || event->messageType != NVTX_MESSAGE_TYPE_REGISTERED ||
      !event->message.registered)
    write_line("problem: a range without domain or name", "");
  else
    write_line("push", (const char *)(const void *)event->message.registered);
  return 0;
}

static int NVTX_API pop(nvtxDomainHandle_t domain)
{
  if ((void *)domain != (void *)domain_name)
    write_line("problem: a pop of another domain", "");
  else
    write_line("pop", "");
  return 0;
}

static void NVTX_API name_thread(uint32_t thread, const char *name)
{
  pthread_mutex_lock(&mutex);
  fprintf(record, "%u name %s\n", thread, name);
  pthread_mutex_unlock(&mutex);
}

static void __attribute__((destructor)) close_record(void)
{
  if (record)
    fclose(record);
}

/* Put a function into the program's table. */
static int install(const NvtxExportTableCallbacks *callbacks, NvtxCallbackModule module,
                   uint32_t id, NvtxFunctionPointer function)
{
  NvtxFunctionTable table = NULL;
  unsigned int size = 0;
  if (!callbacks->GetModuleFunctionTable(module, &table, &size) || id >= size || !table[id]) {
    fprintf(record, "problem: no function %u of module %d\n", id, (int)module);
    return 0;
  }
  *table[id] = function;
  return 1;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
  const char *path = getenv("STARMILL_NVTX_RECORD");
  record = path ? fopen(path, "w") : NULL;
  if (!record)
    return 0;
  const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
  if (!callbacks) {
    fprintf(record, "problem: no table of callbacks\n");
    return 0;
  }
  return install(callbacks, NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_NameOsThreadA,
                 (NvtxFunctionPointer)name_thread) &&
         install(callbacks, NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainCreateA,
                 (NvtxFunctionPointer)create) &&
         install(callbacks, NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRegisterStringA,
                 (NvtxFunctionPointer)add_text) &&
         install(callbacks, NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePushEx,
                 (NvtxFunctionPointer)push) &&
         install(callbacks, NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePop,
                 (NvtxFunctionPointer)pop);
}
