/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* gettid */

#include "kernels/base/nvtx.h"

int mill_nvtx_listens;

#ifdef MILL_HAVE_NVTX
#include <string.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>

#define RANGE_NAME(symbol, name) [symbol] = (name),
static const char *const range_name[] = {MILL_RANGE_LIST(RANGE_NAME)};
#undef RANGE_NAME

static nvtxDomainHandle_t domain;
static nvtxStringHandle_t text[MILL_N_RANGE];

void mill_nvtx_start(void)
{
  if (domain)
    return;
  domain = nvtxDomainCreateA("starmill"); /* NULL where nothing listens */
  for (int i = 0; i < MILL_N_RANGE && domain; i++)
    text[i] = nvtxDomainRegisterStringA(domain, range_name[i]);
  mill_nvtx_listens = domain != NULL;
  mill_nvtx_name_thread("fit");
}

void mill_nvtx_name_thread(const char *name)
{
  if (mill_nvtx_listens)
    nvtxNameOsThreadA((uint32_t)gettid(), name);
}

void mill_nvtx_push(int range)
{
  nvtxEventAttributes_t event;
  memset(&event, 0, sizeof event);
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  event.message.registered = text[range];
  nvtxDomainRangePushEx(domain, &event);
}

void mill_nvtx_pop(void)
{
  nvtxDomainRangePop(domain);
}

#else

void mill_nvtx_start(void)
{
}

void mill_nvtx_name_thread(const char *name)
{
  (void)name;
}

void mill_nvtx_push(int range)
{
  (void)range;
}

void mill_nvtx_pop(void)
{
}

#endif
