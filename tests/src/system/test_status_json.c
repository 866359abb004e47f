/* JSON of src/system/status_json.c: every byte is escaped or replaced, and what is written is read.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"
#include "src/system/status_json.h"

static char *text;
static size_t n_byte;

static mill_json begin(void)
{
  mill_json json = {.out = open_memstream(&text, &n_byte)};
  assert_non_null(json.out);
  return json;
}

static mill_json_doc *end(mill_json *json)
{
  mill_json_doc *doc = NULL;
  assert_int_equal(fclose(json->out), 0);
  if (mill_json_read(text, n_byte, &doc) != MILL_OK)
    fail_msg("%s in %s", mill_error_message(), text);
  return doc;
}

static void test_texts(void **state)
{
  (void)state;
  /* RFC 8259, section 7, and U+FFFD for what is no UTF-8: stray and cut sequences, overlong
   * forms, surrogates, beyond U+10FFFF, noncharacters */
  static const struct {
    const char *given, *written, *read;
  } c[] = {
      {"", "\"\"", ""},
      {"a/b c", "\"a/b c\"", "a/b c"},
      {"q\"b\\", "\"q\\\"b\\\\\"", "q\"b\\"},
      {"\x01\t\n\r\x1f\x7f", "\"\\u0001\\u0009\\u000a\\u000d\\u001f\\u007f\"",
       "\x01\t\n\r\x1f\x7f"},
      {"%s%n", "\"%s%n\"", "%s%n"},
      {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x8c\x9f", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x8c\x9f\"",
       "\xc3\xa9\xe2\x82\xac\xf0\x9f\x8c\x9f"},
      {"a\xff z", "\"a\\ufffd z\"", "a\xef\xbf\xbd z"},
      {"\xc3", "\"\\ufffd\"", "\xef\xbf\xbd"},
      {"\xe2\x82", "\"\\ufffd\\ufffd\"", "\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xc0\xaf", "\"\\ufffd\\ufffd\"", "\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"",
       "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xef\xbf\xbe", "\"\\ufffd\"", "\xef\xbf\xbd"},
      {"\xc2\x85\xef\xbb\xbf", "\"\\u0085\\ufeff\"", "\xc2\x85\xef\xbb\xbf"},
  };
  for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
    char expected[256];
    mill_json json = begin();
    mill_json_text(&json, NULL, c[i].given);
    mill_json_doc *doc = end(&json);
    snprintf(expected, sizeof expected, "%s", c[i].written);
    assert_string_equal(text, expected);
    assert_string_equal(mill_json_get_text(doc, mill_json_root(doc), "none"), c[i].read);
    mill_json_free(doc);
    free(text);
  }
}

static void test_numbers(void **state)
{
  (void)state;
  mill_json json = begin();
  mill_json_open(&json, NULL, '{');
  mill_json_integer(&json, "most", INT64_MAX);
  mill_json_integer(&json, "least", INT64_MIN);
  mill_json_real(&json, "real", -1.5e-7);
  mill_json_real(&json, "nan", (double)NAN);
  mill_json_real(&json, "infinity", -(double)INFINITY);
  mill_json_text(&json, "text", "12");
  mill_json_text(&json, "null", NULL);
  mill_json_bool(&json, "yes", 7);
  mill_json_close(&json);
  mill_json_doc *doc = end(&json);
  const int root = mill_json_root(doc);
#define MEMBER(name) doc, mill_json_member(doc, root, name)
  assert_true(mill_json_get_integer(MEMBER("most"), 0) == INT64_MAX);
  assert_true(mill_json_get_integer(MEMBER("least"), 0) == INT64_MIN);
  assert_true(mill_json_get_real(MEMBER("real"), 0) == -1.5e-7);
  assert_true(isnan(mill_json_get_real(MEMBER("nan"), (double)NAN)));
  assert_non_null(strstr(text, "\"nan\": null"));
  assert_non_null(strstr(text, "\"infinity\": null"));
  assert_non_null(strstr(text, "\"yes\": true"));
  /* another kind is as good as none */
  assert_int_equal(mill_json_get_integer(MEMBER("text"), -3), -3);
  assert_int_equal(mill_json_get_integer(MEMBER("real"), -3), -3);
  assert_int_equal(mill_json_get_integer(MEMBER("absent"), -3), -3);
  assert_null(mill_json_get_text(MEMBER("null"), NULL));
  assert_null(mill_json_get_text(MEMBER("most"), NULL));
  assert_string_equal(mill_json_get_text(MEMBER("text"), ""), "12");
#undef MEMBER
  mill_json_free(doc);
  free(text);
}

static void test_structure(void **state)
{
  (void)state;
  mill_json json = begin();
  mill_json_open(&json, NULL, '{');
  mill_json_open(&json, "empty", '{');
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
  mill_json_raw(&json, "raw", "{\"x\": 1}\n\n");
  mill_json_close(&json);
  mill_json_doc *doc = end(&json);
  assert_string_equal(text, "{\n"
                            "  \"empty\": {},\n"
                            "  \"list\": [\n"
                            "    {\"i\": 0, \"deep\": [0, 1]},\n"
                            "    {\"i\": 1, \"deep\": [10, 11]},\n"
                            "    {\"i\": 2, \"deep\": [20, 21]}\n"
                            "  ],\n"
                            "  \"raw\": {\"x\": 1}\n"
                            "}\n");
  const int list = mill_json_member(doc, mill_json_root(doc), "list");
  assert_int_equal(mill_json_n_item(doc, list), 3);
  const int deep = mill_json_member(doc, mill_json_item(doc, list, 2), "deep");
  assert_int_equal(mill_json_get_integer(doc, mill_json_item(doc, deep, 1), -1), 21);
  assert_int_equal(mill_json_item(doc, list, 3), 0);
  assert_int_equal(mill_json_item(doc, list, -1), 0);
  assert_int_equal(mill_json_n_item(doc, deep + 10000), 0);
  assert_string_equal(mill_json_key(doc, mill_json_root(doc), 1), "list");
  assert_null(mill_json_key(doc, mill_json_root(doc), 3));
  assert_null(mill_json_key(doc, list, 0));
  mill_json_free(doc);
  free(text);
}

static void test_what_is_no_json(void **state)
{
  (void)state;
  static const char *const bad[] = {"", "{", "{\"a\": [1, 2}", "\"open", "{\"a\": 1}}", "\x80"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    mill_json_doc *doc = NULL;
    assert_int_equal(mill_json_read(bad[i], strlen(bad[i]), &doc), MILL_ERR_INPUT);
    assert_null(doc);
    assert_true(mill_error_message()[0] != '\0');
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_texts),
      cmocka_unit_test(test_numbers),
      cmocka_unit_test(test_structure),
      cmocka_unit_test(test_what_is_no_json),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
