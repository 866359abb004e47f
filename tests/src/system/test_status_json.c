/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON of src/system/status_json.c: any text and number is written, and what is written is read. */
#include "tests/mill_test.h"

#include "kernels/base/error.h"
#include "src/system/status_json.h"

static char *text;
static size_t n_byte;

static mill_json begin(void)
{
  mill_json json = {.out = open_memstream(&text, &n_byte)};
  assert_non_null(json.out);
  mill_json_open(&json, NULL, '{');
  return json;
}

static json_t *end(mill_json *json)
{
  json_error_t error;
  assert_int_equal(mill_json_close(json), MILL_OK);
  assert_int_equal(fclose(json->out), 0);
  json_t *doc = json_loadb(text, n_byte, 0, &error);
  if (!doc)
    fail_msg("%s in %s", error.text, text);
  return doc;
}

MILL_TEST(texts)
{
  /* U+FFFD for what is no UTF-8: stray and cut sequences, overlong forms, surrogates, beyond
   * U+10FFFF; read NULL: the same as given */
  static const struct {
    const char *given, *read;
  } c[] = {
      {"", NULL},
      {"a/b c", NULL},
      {"q\"b\\", NULL},
      {"\x01\t\n\r\x1f\x7f", NULL},
      {"%s%n", NULL},
      {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x8c\x9f", NULL},
      {"a\xff z", "a\xef\xbf\xbd z"},
      {"\xc3", "\xef\xbf\xbd"},
      {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xc3\xa9\xff\xe2\x82\xac", "\xc3\xa9\xef\xbf\xbd\xe2\x82\xac"},
      {"\xc2\x85\xef\xbb\xbf", NULL},
  };
  for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
    mill_json json = begin();
    mill_json_text(&json, "text", c[i].given);
    json_t *doc = end(&json);
    assert_string_equal(json_string_value(json_object_get(doc, "text")),
                        c[i].read ? c[i].read : c[i].given);
    json_decref(doc);
    free(text);
  }
}

MILL_TEST(numbers)
{
  mill_json json = begin();
  mill_json_integer(&json, "most", INT64_MAX);
  mill_json_integer(&json, "least", INT64_MIN);
  mill_json_real(&json, "real", -1.5e-7);
  mill_json_real(&json, "nan", (double)NAN);
  mill_json_real(&json, "infinity", -(double)INFINITY);
  mill_json_text(&json, "text", "12");
  mill_json_text(&json, "null", NULL);
  json_t *doc = end(&json);
  assert_true(json_integer_value(json_object_get(doc, "most")) == INT64_MAX);
  assert_true(json_integer_value(json_object_get(doc, "least")) == INT64_MIN);
  assert_true(json_real_value(json_object_get(doc, "real")) == -1.5e-7);
  assert_non_null(strstr(text, "\"nan\": null"));
  assert_non_null(strstr(text, "\"infinity\": null"));
  assert_true(json_is_null(json_object_get(doc, "null")));
  json_decref(doc);
  free(text);
}

/* Members stand in the order in which they were added: a status file is known by its first. */
MILL_TEST(structure)
{
  mill_json json = begin();
  mill_json_open(&json, "z", '{');
  mill_json_close(&json);
  mill_json_open(&json, "list", '[');
  for (int i = 0; i < 3; i++) {
    mill_json_open(&json, NULL, '{');
    mill_json_integer(&json, "i", i);
    mill_json_open(&json, "deep", '[');
    mill_json_integer(&json, NULL, 10 * i);
    mill_json_integer(&json, NULL, 10 * i + 1);
    mill_json_close(&json);
    mill_json_close(&json);
  }
  mill_json_close(&json);
  json_t *doc = end(&json);
  assert_int_equal(strncmp(text, "{\n  \"z\": {},\n  \"list\": [\n", 23), 0);
  assert_string_equal(text + n_byte - 2, "}\n");
  char *compact = json_dumps(doc, JSON_COMPACT);
  assert_string_equal(compact, "{\"z\":{},\"list\":[{\"i\":0,\"deep\":[0,1]},"
                               "{\"i\":1,\"deep\":[10,11]},{\"i\":2,\"deep\":[20,21]}]}");
  free(compact);
  json_decref(doc);
  free(text);
}

MILL_TEST(what_cannot_be_written)
{
  char small[8];
  mill_json json = {.out = fmemopen(small, sizeof small, "w")};
  assert_non_null(json.out);
  setvbuf(json.out, NULL, _IONBF, 0);
  mill_json_open(&json, NULL, '{');
  mill_json_text(&json, "text", "longer than that");
  assert_int_equal(mill_json_close(&json), MILL_ERR_OUTPUT);
  fclose(json.out);
}

MILL_TEST_MAIN(NULL, NULL)
