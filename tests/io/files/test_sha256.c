/* SHA-256 against the published examples of FIPS 180-4 (NIST's example values) */
#include "tests/mill_test.h"

#include <string.h>

#include "io/files/sha256.h"

static void digest(const void *data, size_t n, char hex[65])
{
  mill_sha256 sha;
  mill_sha256_init(&sha);
  mill_sha256_update(&sha, data, n);
  mill_sha256_final(&sha, hex);
}

static void test_sha256_published_examples(void **state)
{
  (void)state;
  static const struct {
    const char *text, *hex;
  } example[] = {{"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
                 {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
                 {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
                 {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopq"
                  "klmnopqrlmnop"
                  "qrsmnopqrstnopqrstu",
                  "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"}};
  for (size_t i = 0; i < sizeof example / sizeof *example; i++) {
    char hex[65];
    digest(example[i].text, strlen(example[i].text), hex);
    assert_string_equal(hex, example[i].hex);
  }
}

static void test_sha256_million_a(void **state)
{
  (void)state;
  char block[1000], hex[65];
  memset(block, 'a', sizeof block);
  mill_sha256 sha;
  mill_sha256_init(&sha);
  for (int i = 0; i < 1000; i++)
    mill_sha256_update(&sha, block, sizeof block);
  mill_sha256_final(&sha, hex);
  assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* a content given in two calls and in one has the same digest */
static void test_sha256_two_updates(void **state)
{
  (void)state;
  char whole[65], hex[65];
  mill_sha256 sha;
  digest("starmill", 8, whole);
  mill_sha256_init(&sha);
  mill_sha256_update(&sha, "star", 4);
  mill_sha256_update(&sha, "", 0);
  mill_sha256_update(&sha, "mill", 4);
  mill_sha256_final(&sha, hex);
  assert_string_equal(hex, whole);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sha256_published_examples),
      cmocka_unit_test(test_sha256_million_a),
      cmocka_unit_test(test_sha256_two_updates),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
