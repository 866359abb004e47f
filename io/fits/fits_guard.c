/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/fits/fits_guard.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/fits/fits_walk.h"
#include "src/system/regular_file.h"

enum {
  BLOCK = 2880,
  CARD = 80,
  MAX_CARD = 100000, /* cards of a header; DESI's have hundreds */
  MAX_HDU = 10000,
  MAX_FIELD = 999 /* the FITS standard's limit */
};

/* ---- cards ------------------------------------------------------------ */

enum value_type { VALUE_NONE, VALUE_STRING, VALUE_TOKEN };

typedef struct card {
  char keyword[9];
  int type;
  char value[MILL_FITS_MAX_VALUE]; /* string without quotes and trailing blanks, or token */
} card;

/* Copy the string between the quotes at text to value.  Returns the position after the closing
 * quote; NULL: there is none before end. */
static const char *parse_string(const char *text, const char *end, char *value)
{
  size_t n = 0;
  for (const char *p = text + 1; p < end; p++) {
    const int is_quote = *p == '\'', is_double = is_quote && p + 1 < end && p[1] == '\'';
    if (is_quote && !is_double) {
      while (n > 0 && value[n - 1] == ' ')
        n--;
      value[n] = '\0';
      return p + 1;
    }
    p += is_double; /* two quotes stand for one */
    value[n++] = *p;
  }
  return NULL;
}

/* Return n of a keyword PREFIXn; 0: another keyword.  TFORM01 counts as TFORM1, as in CFITSIO. */
static int numbered(const char *keyword, const char *prefix)
{
  const size_t n = strlen(prefix);
  if (strncmp(keyword, prefix, n) != 0)
    return 0;
  int number = 0;
  for (const char *p = keyword + n; *p; p++) {
    if (!isdigit((unsigned char)*p))
      return 0;
    number = number * 10 + (*p - '0'); /* at most seven digits */
  }
  return number;
}

/* Is the keyword `name`, or `name` followed by a number? */
static int is_keyword(const char *keyword, const char *name)
{
  /* compare first letters first: most keywords differ there */
  return *name == *keyword && (strcmp(keyword, name) == 0 || numbered(keyword, name));
}

/* Return the type that CFITSIO needs of a keyword's value: s string, i integer, r real, l logical;
 * 0: any.  CFITSIO aborts on other types. */
static char wanted_type(const char *keyword)
{
  static const char *const known[] = {
      "sXTENSION", "sEXTNAME",  "sTTYPE",  "sTFORM",    "sTUNIT",    "sTDISP",  "sTDIM",
      "sZCMPTYPE", "sZQUANTIZ", "sZNAME",  "sZTENSION", "iBITPIX",   "iNAXIS",  "iPCOUNT",
      "iGCOUNT",   "iTFIELDS",  "iTHEAP",  "iTBCOL",    "iZBITPIX",  "iZNAXIS", "iZPCOUNT",
      "iZTILE",    "iZGCOUNT",  "iTNULL",  "iBLANK",    "iEXTLEVEL", "iEXTVER", "iZBLANK",
      "iZDITHER0", "rBSCALE",   "rBZERO",  "rTSCAL",    "rTZERO",    "rZSCALE", "rZZERO",
      "lSIMPLE",   "lEXTEND",   "lGROUPS", "lZIMAGE",   "lZSIMPLE"};
  size_t i = 0;
  while (i < sizeof known / sizeof *known && !is_keyword(keyword, known[i] + 1))
    i++;
  return i < sizeof known / sizeof *known ? *known[i] : '\0';
}

static int parse_integer(const char *text, int64_t *out)
{
  char *end;
  errno = 0;
  const long long value = strtoll(text, &end, 10);
  if (end == text || *end || errno)
    return 0;
  *out = value;
  return 1;
}

static int parse_real(const char *text, double *out)
{
  char copy[MILL_FITS_MAX_VALUE]; /* has room, since text is a card's value */
  size_t n = 0;
  for (; text[n]; n++) {
    if (!strchr("+-.0123456789EeDd", text[n]))
      return 0; /* strtod would accept nan, inf and hexadecimal */
    copy[n] = text[n] == 'D' || text[n] == 'd' ? 'E' : text[n];
  }
  copy[n] = '\0';
  char *end;
  *out = strtod(copy, &end);
  return n > 0 && *end == '\0' && isfinite(*out);
}

/* Read a card's value, which begins at text + start.  CONTINUE may only continue a string. */
static int parse_value(const mill_fits_place *at, const char *text, int start, int i_card,
                       card *out)
{
  const char *p = text + start, *end = text + CARD;
  while (p < end && *p == ' ')
    p++;
  if (p < end && *p == '\'') {
    out->type = VALUE_STRING;
    p = parse_string(p, end, out->value);
    if (!p)
      return ERROR_HDU(at, "card %d (%s) is a string without its closing quote; " BAD, i_card + 1,
                       out->keyword);
    while (p < end && *p == ' ')
      p++;
    if (p < end && *p != '/')
      return ERROR_HDU(at, "card %d (%s) has text after its closing quote; " BAD, i_card + 1,
                       out->keyword);
  } else if (strcmp(out->keyword, "CONTINUE") != 0) {
    size_t length = 0;
    while (p < end && *p != ' ' && *p != '/')
      out->value[length++] = *p++;
    out->type = length ? VALUE_TOKEN : VALUE_NONE;
  }
  return MILL_OK;
}

/* Does the value of a card have the wanted type? */
static int has_type(const card *c, char wanted)
{
  int64_t integer;
  double real;
  if (wanted == 's')
    return c->type == VALUE_STRING;
  if (c->type != VALUE_TOKEN)
    return 0;
  return wanted == 'i'   ? parse_integer(c->value, &integer)
         : wanted == 'r' ? parse_real(c->value, &real)
                         : strcmp(c->value, "T") == 0 || strcmp(c->value, "F") == 0;
}

/* Check a card and split it into keyword and value. */
static int parse_card(const mill_fits_place *at, const char *text, int i_card, card *out)
{
  memset(out, 0, sizeof *out);
  int n = 0, start = 10; /* length of the keyword, column where the value may begin */
  while (n < 8 && text[n] != ' ')
    n++;
  for (int i = 0; i < 8; i++) {
    const unsigned char c = (unsigned char)text[i];
    const int is_allowed = isupper(c) || isdigit(c) || c == '-' || c == '_';
    if (i < n ? !is_allowed : c != ' ')
      return ERROR_HDU(at, "card %d has the bad keyword '%.8s'; " BAD, i_card + 1, text);
  }
  memcpy(out->keyword, text, (size_t)n);
  if (n == 0 || strcmp(out->keyword, "COMMENT") == 0 || strcmp(out->keyword, "HISTORY") == 0)
    return MILL_OK;
  const char wanted = wanted_type(out->keyword);
  if (strcmp(out->keyword, "HIERARCH") == 0) {
    const char *equals = memchr(text, '=', CARD);
    if (!equals)
      return MILL_OK;
    start = (int)(equals - text) + 1;
  } else if (strcmp(out->keyword, "CONTINUE") != 0 && (text[8] != '=' || text[9] != ' ')) {
    if (wanted)
      return ERROR_HDU(at, "card %d (%s) has no value; " BAD, i_card + 1, out->keyword);
    return MILL_OK; /* a card without a value */
  }
  MILL_CHECK(parse_value(at, text, start, i_card, out));
  if (wanted && !has_type(out, wanted))
    return ERROR_HDU(at, "card %d (%s) must be %s; " BAD, i_card + 1, out->keyword,
                     wanted == 's'   ? "a string in quotes"
                     : wanted == 'i' ? "an integer"
                     : wanted == 'r' ? "a finite number"
                                     : "T or F");
  return MILL_OK;
}

/* ---- one header ------------------------------------------------------- */

typedef struct header {
  char *text; /* [n_card][CARD], without the END card */
  int n_card;
  int64_t bytes; /* with the END card and padding */
} header;

/* Read a header's blocks up to its END card; *out owns its text. */
static int read_header(const mill_fits_place *at, int fd, int64_t start, header *out)
{
  int64_t room = 0;
  for (;;) {
    const size_t used = (size_t)out->n_card * CARD;
    MILL_CHECK(MILL_GROW(&out->text, &room, (int64_t)used + BLOCK));
    const int64_t got = mill_fits_read_at(fd, out->text + used, BLOCK, start + out->bytes);
    if (got < 0)
      return MILL_ERROR(MILL_ERR_INPUT, "%s: cannot be read: %s", at->path, strerror(errno));
    if (got < BLOCK)
      return ERROR_HDU(at, "the file ends inside this header (no END card); " CUT);
    out->bytes += BLOCK;
    for (int i = 0; i < BLOCK / CARD; i++) {
      const char *text = out->text + used + (size_t)i * CARD;
      if (memcmp(text, "END     ", 8) == 0) {
        for (int j = 8; j < CARD; j++)
          if (text[j] != ' ')
            return ERROR_HDU(at, "text follows END in card %d; " BAD, out->n_card + 1);
        return MILL_OK;
      }
      /* check now, so that data read as a header are noticed at once */
      for (int j = 0; j < CARD; j++)
        if (text[j] < ' ' || text[j] > '~')
          return ERROR_HDU(at,
                           "card %d of the header holds a byte that is not printable text; " BAD,
                           out->n_card + 1);
      if (++out->n_card >= MAX_CARD)
        return ERROR_HDU(at, "the header has more than %d cards and no END; " BAD, MAX_CARD);
    }
  }
}

/* Find EXTNAME, in upper case; messages of the later checks need it. */
static void find_name(const mill_fits_place *at, const header *h, char *name)
{
  for (int i = 0; i < h->n_card; i++) {
    const char *text = h->text + (size_t)i * CARD;
    card c;
    if (memcmp(text, "EXTNAME ", 8) != 0 || parse_card(at, text, i, &c) != MILL_OK)
      continue;
    for (int j = 0; c.value[j]; j++)
      name[j] = (char)toupper((unsigned char)c.value[j]);
    return;
  }
}

/* Read card i_card; fail unless it has this keyword, which FITS requires there. */
static int card_at(const mill_fits_place *at, const header *h, int i_card, const char *keyword,
                   card *out)
{
  memset(out, 0, sizeof *out);
  if (i_card < h->n_card)
    MILL_CHECK(parse_card(at, h->text + (size_t)i_card * CARD, i_card, out));
  if (strcmp(out->keyword, keyword) != 0)
    return ERROR_HDU(at, "card %d is '%s', not the mandatory %s; " BAD, i_card + 1, out->keyword,
                     keyword);
  return MILL_OK;
}

static int integer_at(const mill_fits_place *at, const header *h, int i_card, const char *keyword,
                      int64_t min, int64_t max, int64_t *out)
{
  card c;
  MILL_CHECK(card_at(at, h, i_card, keyword, &c));
  if (c.type != VALUE_TOKEN || !parse_integer(c.value, out) || *out < min || *out > max)
    return ERROR_HDU(at, "%s = '%s' is out of range; " BAD, keyword, c.value);
  return MILL_OK;
}

/* Bytes per row of a binary-table column; -1: malformed TFORM. */
static int64_t field_bytes(const char *form)
{
  static const char codes[] = "LBAIJEKDCMPQ";
  static const int bytes[] = {1, 1, 1, 2, 4, 4, 8, 8, 8, 16, 8, 16};
  const char *p = form + strspn(form, " ");
  int64_t repeat = isdigit((unsigned char)*p) ? 0 : 1; /* 1 if TFORM gives no number */
  for (; isdigit((unsigned char)*p); p++) {
    repeat = repeat * 10 + (*p - '0');
    if (repeat > INT32_MAX)
      return -1;
  }
  if (*p == 'X')
    return (repeat + 7) / 8;
  const char *code = *p ? strchr(codes, *p) : NULL;
  if (!code)
    return -1;
  if ((*p == 'P' || *p == 'Q') && (repeat > 1 || p[1] == '\0' || !strchr("LXBIJKAEDCM", p[1])))
    return -1;
  if (*p == 'A' && p[1]) { /* rAw: strings of w characters in r bytes */
    int64_t width;
    if (!parse_integer(p + 1, &width) || width < 1 || width > repeat)
      return -1;
  }
  return repeat * bytes[code - codes];
}

/* ---- one HDU ---------------------------------------------------------- */

/* State of the check of an HDU. */
typedef struct walk {
  mill_fits_place at;
  mill_fits_hdu *hdu;
  header h;
  int is_binary, is_table; /* is_binary: binary table; is_table: binary or text table */
  int i_card;              /* next card to check */
  mill_fits_table table;
} walk;

/* Read an HDU's kind from its first card; the primary keeps kind 0, an image. */
static int take_kind(walk *w)
{
  card c;
  if (w->at.i_hdu == 0) {
    MILL_CHECK(card_at(&w->at, &w->h, 0, "SIMPLE", &c));
    if (c.value[0] != 'T')
      return ERROR_HDU(&w->at, "SIMPLE is not T: not a standard FITS file; " BAD);
    return MILL_OK;
  }
  MILL_CHECK(card_at(&w->at, &w->h, 0, "XTENSION", &c));
  w->is_binary = strcmp(c.value, "BINTABLE") == 0;
  w->is_table = w->is_binary || strcmp(c.value, "TABLE") == 0;
  w->hdu->kind = w->is_binary                    ? MILL_FITS_TABLE
                 : strcmp(c.value, "IMAGE") == 0 ? MILL_FITS_IMAGE
                                                 : MILL_FITS_OTHER;
  return MILL_OK;
}

/* Check the mandatory cards after the first, and compute data_bytes. */
static int take_sizes(walk *w)
{
  const mill_fits_place *at = &w->at;
  mill_fits_hdu *hdu = w->hdu;
  int64_t bitpix, n_axis, p_count = 0, g_count = 1, n_field = 0;
  MILL_CHECK(integer_at(at, &w->h, 1, "BITPIX", -64, 64, &bitpix));
  MILL_CHECK(integer_at(at, &w->h, 2, "NAXIS", 0, MILL_FITS_MAX_AXIS, &n_axis));
  if (!mill_fits_good_bitpix(bitpix))
    return ERROR_HDU(at, "BITPIX = %lld, expected 8, 16, 32, 64, -32 or -64; " BAD,
                     (long long)bitpix);
  if (w->is_table && (bitpix != 8 || n_axis != 2))
    return ERROR_HDU(at, "a table has BITPIX %lld and NAXIS %lld, not 8 and 2; " BAD,
                     (long long)bitpix, (long long)n_axis);
  w->i_card = 3;
  int64_t n_element = n_axis > 0 ? 1 : 0; /* no axis: no data */
  for (int i = 0; i < n_axis; i++) {
    char keyword[16];
    snprintf(keyword, sizeof keyword, "NAXIS%d", i + 1);
    MILL_CHECK(integer_at(at, &w->h, w->i_card++, keyword, 0, INT64_MAX, &hdu->axis[i]));
    if (__builtin_mul_overflow(n_element, hdu->axis[i], &n_element))
      return ERROR_HDU(at, "its axes multiply to more than a file can hold; " BAD);
  }
  /* a file can claim any number of empty rows, and readers allocate memory for each */
  if (w->is_table && hdu->axis[0] == 0 && hdu->axis[1] > 0)
    return ERROR_HDU(at, "its %lld rows have no bytes; " BAD, (long long)hdu->axis[1]);
  hdu->bitpix = (int)bitpix;
  hdu->n_axis = (int)n_axis;
  if (at->i_hdu > 0) {
    MILL_CHECK(integer_at(at, &w->h, w->i_card++, "PCOUNT", 0, INT64_MAX, &p_count));
    MILL_CHECK(integer_at(at, &w->h, w->i_card++, "GCOUNT", 1, 1, &g_count));
    if (hdu->kind == MILL_FITS_IMAGE && p_count != 0)
      return ERROR_HDU(at, "an image has PCOUNT %lld, not 0; " BAD, (long long)p_count);
  }
  if (w->is_table)
    MILL_CHECK(integer_at(at, &w->h, w->i_card++, "TFIELDS", 0, MAX_FIELD, &n_field));
  if (__builtin_add_overflow(n_element, p_count, &n_element) ||
      __builtin_mul_overflow(n_element, llabs(bitpix) / 8, &hdu->data_bytes))
    return ERROR_HDU(at, "its size is more than a file can hold; " BAD);
  w->table.n_field = w->is_binary ? (int)n_field : 0;
  return MILL_OK;
}

/* Check a card that describes the structure of a binary table. */
static int take_table_card(const mill_fits_place *at, const card *c, mill_fits_table *table)
{
  static const struct {
    const char *name;
    int first, last; /* range of the number after the name; 0, 0: no number */
  } known[MILL_N_KEY] = {[MILL_KEY_ZNAXIS] = {"ZNAXIS", 0, MILL_FITS_MAX_AXIS},
                         [MILL_KEY_ZTILE] = {"ZTILE", 1, MILL_FITS_MAX_AXIS},
                         [MILL_KEY_ZNAME] = {"ZNAME", 1, 3},
                         [MILL_KEY_ZVAL] = {"ZVAL", 1, 3},
                         [MILL_KEY_ZBITPIX] = {"ZBITPIX", 0, 0},
                         [MILL_KEY_ZCMPTYPE] = {"ZCMPTYPE", 0, 0},
                         [MILL_KEY_THEAP] = {"THEAP", 0, 0}};
  int64_t value = -1;
  if (c->type == VALUE_TOKEN)
    parse_integer(c->value, &value);
  const int i_form = numbered(c->keyword, "TFORM"), i_type = numbered(c->keyword, "TTYPE");
  if (i_form > 0 && i_form <= table->n_field) {
    mill_fits_field *field = &table->field[i_form - 1];
    field->n_byte = field_bytes(c->value);
    if (field->n_byte < 0)
      return ERROR_HDU(at, "%s = '%s' must be a column format; " BAD, c->keyword, c->value);
    if (field->have_form)
      return ERROR_HDU(at, "%s stands twice; " BAD, c->keyword);
    field->have_form = 1;
    memcpy(field->form, c->value, sizeof field->form);
  }
  if (i_type > 0 && i_type <= table->n_field) {
    /* += because find_streams (fits_tiles.c) refuses more than one, even in a repeated TTYPE */
    table->field[i_type - 1].n_tile += strcasecmp(c->value, "COMPRESSED_DATA") == 0;
    table->field[i_type - 1].n_gzip += strcasecmp(c->value, "GZIP_COMPRESSED_DATA") == 0;
  }
  for (int k = 0; k < MILL_N_KEY; k++) {
    const int number = numbered(c->keyword, known[k].name);
    if (!is_keyword(c->keyword, known[k].name) || number < known[k].first || number > known[k].last)
      continue;
    /* refuse repeats: CFITSIO uses the first of some keywords and the last of others */
    mill_fits_key *key = &table->key[k][number];
    if (key->have)
      return ERROR_HDU(at, "%s stands twice; " BAD, c->keyword);
    key->have = 1;
    key->value = value;
    memcpy(key->text, c->value, sizeof key->text);
  }
  if (strcmp(c->keyword, "ZIMAGE") == 0)
    table->is_image = c->value[0] == 'T';
  /* CFITSIO uses ZDITHER0 as an index into a table of random numbers */
  if (strcmp(c->keyword, "ZDITHER0") == 0 && (value < 1 || value > 10000))
    return ERROR_HDU(at, "ZDITHER0 = '%s', expected 1 to 10000; " BAD, c->value);
  return MILL_OK;
}

/* Is this card forbidden after the mandatory cards?  CFITSIO might use a repeated card, which could
 * contradict the checked card.  One ZIMAGE is allowed; *n_zimage counts them. */
static int is_out_of_place(const walk *w, const card *c, int *n_zimage)
{
  static const char *const once[] = {"SIMPLE", "XTENSION", "BITPIX", "NAXIS", "PCOUNT",
                                     "GCOUNT", "TFIELDS",  "GROUPS", "ZIMAGE"};
  size_t i = 0;
  while (i < sizeof once / sizeof *once && !is_keyword(c->keyword, once[i]))
    i++;
  if (i == sizeof once / sizeof *once)
    return 0;
  if (strcmp(c->keyword, "ZIMAGE") == 0)
    return (*n_zimage)++ > 0;
  if (strcmp(c->keyword, "GROUPS") == 0)
    return c->value[0] != 'F';
  if (w->at.i_hdu > 0)
    return 1;
  /* a primary HDU may have some of these cards, with harmless values */
  if (strcmp(c->keyword, "PCOUNT") == 0)
    return strcmp(c->value, "0") != 0;
  if (strcmp(c->keyword, "GCOUNT") == 0)
    return strcmp(c->value, "1") != 0;
  /* LAMOST's empty primary HDU keeps the NAXISn of a former image; no reader uses them */
  return w->hdu->n_axis != 0 || !numbered(c->keyword, "NAXIS");
}

/* Check the cards after the mandatory cards; note the cards that describe a binary table. */
static int take_other_cards(walk *w)
{
  int n_zimage = 0;
  card c;
  MILL_CHECK(MILL_ALLOC(w->table.n_field, &w->table.field));
  for (int i = w->i_card; i < w->h.n_card; i++) {
    MILL_CHECK(parse_card(&w->at, w->h.text + (size_t)i * CARD, i, &c));
    if (is_out_of_place(w, &c, &n_zimage))
      return ERROR_HDU(&w->at, "card %d (%s) does not belong there; " BAD, i + 1, c.keyword);
    if (w->is_binary)
      MILL_CHECK(take_table_card(&w->at, &c, &w->table));
  }
  return MILL_OK;
}

/* Check that the columns fill the rows exactly, and that the heap lies inside the data. */
static int check_table(walk *w)
{
  mill_fits_table *table = &w->table;
  const mill_fits_key *heap = &table->key[MILL_KEY_THEAP][0];
  const int64_t rows_bytes = w->hdu->axis[0] * w->hdu->axis[1];
  int64_t row_bytes = 0;
  for (int i = 0; i < table->n_field; i++) {
    if (!table->field[i].have_form)
      return ERROR_HDU(&w->at, "TFORM%d is missing; " BAD, i + 1);
    row_bytes += table->field[i].n_byte; /* no overflow: at most 999 times 2^35 */
  }
  if (row_bytes != w->hdu->axis[0])
    return ERROR_HDU(&w->at, "its columns add up to %lld bytes, but its rows have %lld; " BAD,
                     (long long)row_bytes, (long long)w->hdu->axis[0]);
  table->heap_start = heap->have ? heap->value : rows_bytes;
  if (table->heap_start < rows_bytes || table->heap_start > w->hdu->data_bytes)
    return ERROR_HDU(&w->at, "THEAP = %lld lies outside the data; " BAD,
                     (long long)table->heap_start);
  return MILL_OK;
}

/* Check the HDU at byte `start` of the file.  *next: start of the next HDU.
 * size: bytes of the file; image_limit: most bytes of an unpacked image. */
static int walk_hdu(mill_fits_guard *guard, int i_hdu, int64_t start, int64_t size,
                    int64_t image_limit, int64_t *next)
{
  int err = MILL_OK;
  mill_fits_hdu *hdu = &guard->hdu[i_hdu];
  walk *w = NULL;
  MILL_TRY(MILL_ALLOC(1, &w));
  w->hdu = hdu;
  w->at = (mill_fits_place){guard->path, i_hdu, hdu->name};
  MILL_TRY(read_header(&w->at, guard->fd, start, &w->h));
  find_name(&w->at, &w->h, hdu->name);
  MILL_TRY(take_kind(w));
  MILL_TRY(take_sizes(w));
  hdu->data_start = start + w->h.bytes;
  const int64_t left = size - hdu->data_start;
  /* compare data_bytes before rounding it up to blocks, which could overflow */
  if (hdu->data_bytes > left || (hdu->data_bytes + BLOCK - 1) / BLOCK * BLOCK > left)
    MILL_TRY(ERROR_HDU(&w->at,
                       "needs %lld bytes of data from byte %lld, but the file ends at %lld; " CUT,
                       (long long)hdu->data_bytes, (long long)hdu->data_start, (long long)size));
  *next = hdu->data_start + (hdu->data_bytes + BLOCK - 1) / BLOCK * BLOCK;
  MILL_TRY(take_other_cards(w));
  if (w->is_binary)
    MILL_TRY(check_table(w));
  if (w->is_binary && w->table.is_image)
    MILL_TRY(mill_fits_take_compressed(&w->at, guard, &w->table, image_limit, hdu));
done:
  if (w)
    MILL_FREE(w->h.text, w->table.field, w);
  return err;
}

static int examine(const mill_fits_guard *guard, struct stat *st)
{
  if (fstat(guard->fd, st) != 0)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: cannot be examined: %s", guard->path, strerror(errno));
  return MILL_OK;
}

/* Check all HDUs of the open file, and list them in guard->hdu. */
static int walk_file(mill_fits_guard *guard, int64_t image_limit)
{
  struct stat st;
  char first[10] = "";
  MILL_CHECK(examine(guard, &st));
  const int64_t size = (int64_t)st.st_size;
  if (size == 0)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: the file is empty; fetch it again", guard->path);
  if (mill_fits_read_at(guard->fd, first, 9, 0) != 9 || memcmp(first, "SIMPLE  =", 9) != 0)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: not a FITS file (it does not begin with SIMPLE); give a FITS file, plain or gzip",
        guard->path);
  int64_t room = 0;
  for (int64_t start = 0; start < size;) {
    if (guard->n_hdu == MAX_HDU)
      return MILL_ERROR(MILL_ERR_INPUT, "%s: has more than %d HDUs; give a file of spectra",
                        guard->path, MAX_HDU);
    MILL_CHECK(MILL_GROW(&guard->hdu, &room, guard->n_hdu + 1));
    memset(&guard->hdu[guard->n_hdu], 0, sizeof *guard->hdu);
    MILL_CHECK(walk_hdu(guard, guard->n_hdu, start, size, image_limit, &start));
    guard->n_hdu++;
  }
  return MILL_OK;
}

int mill_fits_guard_open(const char *path, const mill_open_limits *limits, mill_fits_guard **out)
{
  struct stat st;
  unsigned char magic[2];
  MILL_AT_END(mill_fits_guard_close_at) mill_fits_guard *guard = NULL;
  const double limit_mib = limits ? limits->gzip_limit_mib : MILL_GZIP_LIMIT_MIB;
  const int64_t limit = limit_mib > 0.0 ? (int64_t)fmin(limit_mib * 1048576.0, 0x1p62) : 0;
  *out = NULL;
  if (strlen(path) >= MILL_FITS_MAX_PATH)
    return MILL_ERROR(MILL_ERR_INPUT, "%.100s...: the path is longer than %d bytes; shorten it",
                      path, MILL_FITS_MAX_PATH - 1);
  MILL_CHECK(MILL_ALLOC(1, &guard));
  strcpy(guard->path, path);
  MILL_CHECK(mill_regular_open(path, "a FITS file", MILL_ERR_INPUT, &guard->fd));
  MILL_CHECK(examine(guard, &st));
  guard->file_size = (int64_t)st.st_size;
  guard->file_mtime = (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec;
  const int64_t n_magic = mill_fits_read_at(guard->fd, magic, 2, 0);
  if (n_magic < 0)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: cannot be read: %s; check the file system", path,
                      strerror(errno));
  if (n_magic == 2 && magic[0] == 0x1f && magic[1] == 0x8b) {
    MILL_CHECK(
        mill_gunzip(path, guard->fd, limit, limits ? limits->scratch : NULL, &guard->unpacked));
    close(guard->fd);
    guard->fd = guard->unpacked.fd;
    guard->is_unpacked = 1;
  }
  MILL_CHECK(walk_file(guard, limit));
  return MILL_GIVE(&guard, out);
}

void mill_fits_guard_close(mill_fits_guard *guard)
{
  if (!guard)
    return;
  if (guard->is_unpacked)
    mill_gunzip_close(&guard->unpacked);
  else
    mill_descriptor_close(&guard->fd);
  MILL_FREE(guard->hdu, guard);
}
