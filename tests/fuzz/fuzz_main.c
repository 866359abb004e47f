/* SPDX-License-Identifier: BSD-3-Clause */
/* One target for libFuzzer: FUZZ_TARGET is its name. */
#include <stdlib.h>

#include "tests/fuzz/targets.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t n, size_t max);

#define TEXT(name)  TEXT_(name)
#define TEXT_(name) #name

static const fuzz_target *target(void)
{
  static const fuzz_target *found;
  if (!found)
    found = fuzz_find(TEXT(FUZZ_TARGET));
  if (!found)
    abort();
  return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
  target()->run(bytes, n);
  return 0;
}

/* libFuzzer's own mutations, but most mutations of a FITS file keep its structure. */
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed)
{
  const int is_fits = target()->is_fits && n >= 2880 && bytes[0] == 'S';
  if (is_fits && seed % 8 != 0)
    return fuzz_mutate_fits(bytes, n, max, seed);
  return LLVMFuzzerMutate(bytes, n, max);
}
