/* SPDX-License-Identifier: BSD-3-Clause */
/** SHA-256 of contents, by libcrypto. */
#pragma once

#include <stddef.h>

typedef struct mill_sha256 {
  struct evp_md_ctx_st *context; /**< owned until mill_sha256_final; NULL: libcrypto failed */
} mill_sha256;

/** Begin a digest; end it by mill_sha256_final, which frees its memory. */
void mill_sha256_init(mill_sha256 *sha);
void mill_sha256_update(mill_sha256 *sha, const void *data, size_t n_byte);

/** End a digest.  hex: 64 lower-case digits and a zero; empty if libcrypto failed (no memory). */
void mill_sha256_final(mill_sha256 *sha, char hex[65]);
