/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/files/sha256.h"

#include <stdio.h>

#include <openssl/evp.h>

static void check(mill_sha256 *sha, int worked)
{
  if (worked)
    return;
  EVP_MD_CTX_free(sha->context);
  sha->context = NULL;
}

void mill_sha256_init(mill_sha256 *sha)
{
  sha->context = EVP_MD_CTX_new();
  check(sha, sha->context && EVP_DigestInit_ex(sha->context, EVP_sha256(), NULL));
}

void mill_sha256_update(mill_sha256 *sha, const void *data, size_t n_byte)
{
  check(sha, sha->context && EVP_DigestUpdate(sha->context, data, n_byte));
}

void mill_sha256_final(mill_sha256 *sha, char hex[65])
{
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned n_byte = 0;
  check(sha, sha->context && EVP_DigestFinal_ex(sha->context, digest, &n_byte));
  hex[0] = '\0';
  for (unsigned i = 0; sha->context && i < n_byte; i++)
    snprintf(hex + 2 * i, 3, "%02x", digest[i]);
  check(sha, 0); /* free the context */
}
