/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/device_choice.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"

enum { MAX_ARCHITECTURES = 256 };

/* Split "86-real", "90a-virtual" or "80" into number, letter ('\0': none) and kind of code: real
 * (machine code), virtual (PTX) or both.  Returns 0 for other words. */
static int read_architecture(const char *word, int *number, char *letter, int *real, int *virtual_)
{
  char *end = NULL;
  const long n = strtol(word, &end, 10);
  if (end == word || n < 10 || n > 9999)
    return 0;
  *number = (int)n;
  *letter = isalpha((unsigned char)*end) ? *end++ : '\0';
  *real = *end == '\0' || strcmp(end, "-real") == 0;
  *virtual_ = *end == '\0' || strcmp(end, "-virtual") == 0;
  return *real || *virtual_;
}

/* Does code for an architecture run on GPUs of a capability?  90a runs on 9.0 alone, 100f on 10.0
 * and later 10.x, 80 on 8.0 and all later ones (as PTX). */
static int is_for(int number, char letter, int capability)
{
  if (letter == 'a')
    return number == capability;
  return number <= capability && (letter != 'f' || number / 10 == capability / 10);
}

/* look for an architecture whose code runs on this capability */
int mill_gpu_has_code(const char *architectures, int major, int minor, int may_translate)
{
  char text[MAX_ARCHITECTURES], *rest = NULL;
  const int capability = 10 * major + minor;
  if (strlen(architectures) >= sizeof text)
    return 1; /* too long: the CUDA runtime will check */
  snprintf(text, sizeof text, "%s", architectures);
  for (char *word = strtok_r(text, "; ,", &rest); word; word = strtok_r(NULL, "; ,", &rest)) {
    int number, real, virtual_; /* is it machine code; is it PTX */
    char letter;
    if (!read_architecture(word, &number, &letter, &real, &virtual_))
      return 1; /* native, all, all-major: the CUDA runtime will check */
    if (is_for(number, letter, capability)) {
      if (real && number / 10 == major)
        return 1;
      if (virtual_ && may_translate)
        return 1;
    }
  }
  return 0;
}

/* Is the driver there, and new enough for the CUDA of this build? */
static int check_driver(const mill_gpu_node *node)
{
  const int needed = node->runtime / 1000 * 1000; /* minor versions are compatible */
  if (node->driver == 0)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "no NVIDIA driver on this machine: ask for a node with a GPU");
  if (node->driver < needed)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "the NVIDIA driver is for CUDA %d.%d, this build needs one for %d.%d: ask "
                      "for a newer driver, or build with an older CUDA (12.4 at least)",
                      node->driver / 1000, node->driver % 1000 / 10, needed / 1000,
                      needed % 1000 / 10);
  return MILL_OK;
}

int mill_gpu_choose(const mill_gpu_node *node, int local_rank, int *gpu)
{
  int n_fit = 0, unfit = -1, barred = -1; /* unfit, barred: the last GPU of that kind */
  *gpu = -1;
  MILL_CHECK(check_driver(node));
  if (node->n_gpu < 1)
    return MILL_ERROR(
        MILL_ERR_CONFIG,
        "this process sees no GPU: ask the scheduler for one (and check CUDA_VISIBLE_DEVICES)");
  const int may_translate = node->driver >= node->runtime;
  for (int pass = 0; pass < 2; pass++) { /* count the GPUs that fit, then take one of these */
    int i_fit = 0;
    for (int i = 0; i < node->n_gpu; i++) {
      const mill_gpu_facts *g = &node->gpu[i];
      if (!mill_gpu_has_code(node->architectures, g->major, g->minor, may_translate)) {
        unfit = i;
        continue;
      }
      if (g->mode == MILL_GPU_PROHIBITED) {
        barred = i;
        continue;
      }
      if (pass == 0)
        n_fit++;
      else if (i_fit++ == local_rank % n_fit)
        *gpu = i;
    }
    if (n_fit == 0)
      break;
  }
  if (n_fit > 0)
    return MILL_OK;
  if (barred >= 0)
    return MILL_ERROR(MILL_ERR_BACKEND,
                      "the GPU %s admits no programs (compute mode prohibited): ask its "
                      "administrator to change this",
                      node->gpu[barred].name);
  const mill_gpu_facts *g = &node->gpu[unfit];
  if (mill_gpu_has_code(node->architectures, g->major, g->minor, /*may_translate=*/1)) /* PTX */
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "this build has no code for the GPU %s (sm_%d%d), only PTX, and the driver "
                      "for CUDA %d.%d cannot translate PTX of CUDA %d.%d: build with "
                      "MILL_CUDA_ARCHITECTURES %d%d, or ask for a newer driver",
                      g->name, g->major, g->minor, node->driver / 1000, node->driver % 1000 / 10,
                      node->runtime / 1000, node->runtime % 1000 / 10, g->major, g->minor);
  return MILL_ERROR(
      MILL_ERR_CONFIG,
      "this build (architectures %s) has no code for the GPU %s (sm_%d%d): build with "
      "MILL_CUDA_ARCHITECTURES %d%d",
      node->architectures, g->name, g->major, g->minor, g->major, g->minor);
}

void mill_gpu_backend_name(const mill_gpu_facts *gpu, char *name, size_t size)
{
  snprintf(name, size, "cuda %.40s sm_%d%d", gpu->name, gpu->major, gpu->minor);
}

void mill_gpu_sharers(int n_rank, const mill_gpu_facts *chosen, int rank, int *n_sharing,
                      int *place)
{
  *n_sharing = *place = 0;
  for (int i = 0; i < n_rank; i++) {
    if (memcmp(chosen[i].uuid, chosen[rank].uuid, sizeof chosen->uuid) != 0)
      continue;
    *place += i < rank;
    *n_sharing += 1;
  }
}

int mill_gpu_share(int n_rank, const mill_gpu_facts *chosen, int rank, int *n_sharing, int *place)
{
  const mill_gpu_facts *mine = &chosen[rank];
  mill_gpu_sharers(n_rank, chosen, rank, n_sharing, place);
  if (*n_sharing > 1 && mine->mode == MILL_GPU_EXCLUSIVE)
    return MILL_ERROR(
        MILL_ERR_BACKEND,
        "%d ranks of this node would share the GPU %s, which admits one program (exclusive "
        "mode): start one rank a GPU",
        *n_sharing, mine->name);
  return MILL_OK;
}

int mill_gpu_memory(const char *name, size_t free_bytes, int n_sharing, size_t *bytes)
{
  *bytes = free_bytes / (size_t)n_sharing;
  if (*bytes < MILL_GPU_MIN_BYTES) {
    char share[64] = "";
    if (n_sharing > 1)
      snprintf(share, sizeof share, " for the %d ranks that share it", n_sharing);
    return MILL_ERROR(
        MILL_ERR_MEMORY,
        "the GPU %s has %zu MiB free%s; a rank needs %zu at least: end other programs on "
        "this GPU%s",
        name, free_bytes >> 20, share, MILL_GPU_MIN_BYTES >> 20,
        n_sharing > 1 ? ", or start fewer ranks" : "");
  }
  return MILL_OK;
}

static mill_gpu_place assigned;
static int is_assigned;

void mill_gpu_assign(const mill_gpu_place *place)
{
  is_assigned = place != NULL;
  if (place)
    assigned = *place;
}

int mill_gpu_assigned(mill_gpu_place *place)
{
  *place = is_assigned ? assigned : (mill_gpu_place){.gpu = -1, .n_sharing = 1};
  return is_assigned;
}
