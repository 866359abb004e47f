/* SPDX-License-Identifier: BSD-3-Clause */
/* Man pages out of tables of options; tests/e2e/test_help_pages.py asks bash for completions. */
#include "tests/mill_test.h"

#include "jobs/options/option_man.h"

typedef struct values {
  int help, n, choice;
  const char *path, *ids, *threads;
} values;

static const char *const words[] = {"one", "two-b", NULL};
static const char *const more_words[] = {"two-b", "three", NULL};

#define AT(member) MILL_AT(values, member)
static const mill_option_table toy = {
    "starmill toy",
    "usage: starmill toy [--count N]\n"
    "                    [--path LIB.h5]\n"
    "       starmill toy make|un-make\n"
    "\n"
    ".hidden 'quotes' and \\n of a\n"
    "first paragraph.\n"
    "\n"
    "A second one.\n",
    "\nSIGTERM stops.\nExit status: 0 done.\n",
    (const mill_option[]){
        {.name = "numbers"},
        {"count", MILL_OPTION_COUNT, AT(n), .max = 9, .help = "a count"},
        {"ids", MILL_OPTION_TEXT, AT(ids), .argument = "ID,ID...", .help = "lists"},
        {"path", MILL_OPTION_TEXT, AT(path), .argument = "LIB.h5", .help = ".h5 at the begin"},
        MILL_OPTION_HELP(values),
        {0}}};
static const mill_option_table making[] = {
    {"starmill toy make", "usage: starmill toy make\n\nMakes.\n", NULL,
     (const mill_option[]){
         {"choice", MILL_OPTION_CHOICE, AT(choice), .words = words, .help = "a choice"}, {0}}},
    {"starmill toy make", "usage: starmill toy make --more\n\n", "Exit status: here a text.\n",
     (const mill_option[]){
         {"choice", MILL_OPTION_CHOICE, AT(choice), .words = more_words, .help = "another"},
         {"threads", MILL_OPTION_TEXT, AT(threads), .key = "threads"},
         {0}}}};
static const values usual = {.n = 3};
static const mill_option_help toy_help = {&toy, &usual}, make = {&making[0], NULL},
                              make_more = {&making[1], NULL};
static const mill_option_help *const help[] = {&toy_help, &make, &make_more, NULL};
static const mill_job_row job[] = {{"toy", "play", NULL, help, NULL}, {0}};

static FILE *out;
static char text[16384];

static int open_out(void **state)
{
  (void)state;
  memset(text, 0, sizeof text);
  out = fmemopen(text, sizeof text, "w");
  return out ? 0 : -1;
}

static void close_out(void)
{
  assert_int_equal(fclose(out), 0);
}

MILL_TEST(man_of_a_job)
{
  mill_man_print_job(job, out);
  close_out();
  assert_non_null(strstr(text, ".TH STARMILL-TOY 1 \"\" \"starmill "));
  const char *body = strstr(text, ".SH NAME");
  assert_non_null(body);
  assert_string_equal(body, ".SH NAME\nstarmill\\-toy \\- play\n"
                            ".SH SYNOPSIS\n"
                            ".SY starmill\ntoy [\\-\\-count N]\n[\\-\\-path LIB.h5]\n.YS\n"
                            ".SY starmill\ntoy make|un\\-make\n.YS\n"
                            ".SH DESCRIPTION\n"
                            "\\&.hidden \\(aqquotes\\(aq and \\en of a\nfirst paragraph.\n"
                            ".PP\nA second one.\n"
                            ".SH OPTIONS\n"
                            ".SS numbers\n"
                            ".TP\n\\fB\\-\\-count\\fR \\fIN\\fR\na count (0 to 9; default 3)\n"
                            ".TP\n\\fB\\-\\-ids\\fR \\fIID,ID...\\fR\nlists\n"
                            ".TP\n\\fB\\-\\-path\\fR \\fILIB.h5\\fR\n\\&.h5 at the begin\n"
                            ".TP\n\\fB\\-\\-help\\fR, \\fB\\-h\\fR\nthis text\n"
                            ".SH NOTES\nSIGTERM stops.\n"
                            ".SH EXIT STATUS\n0 done.\n"
                            ".SH starmill toy make\n"
                            ".SY starmill\ntoy make\n.YS\n"
                            ".PP\nMakes.\n"
                            ".TP\n\\fB\\-\\-choice\\fR \\fINAME\\fR\na choice (one or two\\-b)\n"
                            ".SY starmill\ntoy make \\-\\-more\n.YS\n"
                            ".TP\n\\fB\\-\\-choice\\fR \\fINAME\\fR\nanother (two\\-b or three)\n"
                            ".TP\n\\fB\\-\\-threads\\fR \\fIN\\fR\nthreads per rank; 0: all cores "
                            "available to it (0 to 4096)\n"
                            ".PP\nExit status: here a text.\n"
                            ".SH SEE ALSO\n.BR starmill (1)\n");
}

MILL_TEST(man_of_the_program)
{
  mill_man_print_program(job, "a purpose", "starmill help: this -- text\n", out);
  close_out();
  assert_non_null(strstr(text, ".SH NAME\nstarmill \\- a purpose\n"));
  assert_non_null(strstr(text, ".TP\n.BR starmill\\-toy (1)\nplay\n"));
  assert_non_null(strstr(text, ".SH HELP\n.TP\n.B starmill help\nthis \\-\\- text\n"));
}

MILL_EACH_TEST_MAIN(open_out, NULL)
