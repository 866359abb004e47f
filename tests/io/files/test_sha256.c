/* SPDX-License-Identifier: BSD-3-Clause */
/* SHA-256 against the published examples of FIPS 180-4 (NIST's example values) */
#include "tests/mill_test.h"

#include "io/files/sha256.h"

MILL_TEST(sha256_published_examples)
{
  static const struct {
    const char *text;
    int n_repeat;
    const char *hex;
  } example[] = {
      {"", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"aaaaaaaaaa", 100000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};
  for (size_t i = 0; i < sizeof example / sizeof *example; i++) {
    char hex[65];
    mill_sha256 sha;
    mill_sha256_init(&sha);
    for (int k = 0; k < example[i].n_repeat; k++)
      mill_sha256_update(&sha, example[i].text, strlen(example[i].text));
    mill_sha256_final(&sha, hex);
    assert_string_equal(hex, example[i].hex);
  }
}

MILL_TEST_MAIN(NULL, NULL)
