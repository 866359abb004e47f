/** SHA-256 (FIPS 180-4), for digests that name contents; nothing secret. */
#ifndef MILL_SHA256_H
#define MILL_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct mill_sha256 {
  uint32_t state[8];
  uint64_t n_byte;
  unsigned char block[64]; /**< the n_byte % 64 bytes not yet digested */
  int portable;            /**< without instructions of its own that the processor may have */
} mill_sha256;

void mill_sha256_init(mill_sha256 *sha);
void mill_sha256_init_portable(mill_sha256 *sha); /* as on a processor without them, for tests */
void mill_sha256_update(mill_sha256 *sha, const void *data, size_t n_byte);

/** hex: 64 lower-case digits and the end.  sha must be initialised before it is used again. */
void mill_sha256_final(mill_sha256 *sha, char hex[65]);

#endif
