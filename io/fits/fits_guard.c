#include "io/fits/fits_guard.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "io/fits/gunzip.h"
#include "kernels/base/error.h"
#include "src/system/regular_file.h"

enum {
  BLOCK = 2880,
  CARD = 80,
  MAX_CARD = 100000, /* of one header: DESI's have some hundreds */
  MAX_HDU = 10000,
  MAX_FIELD = 999, /* the FITS standard's limit */
  IO_BYTES = 1 << 18,
  /* bytes of pixels that a byte of a tile may stand for: deflate packs 1032 into one at most, and
   * integers of 4 bytes stand for floats of 8 */
  MAX_PACKING = 2100
};

/* ---- cards ------------------------------------------------------------ */

enum value_type { VALUE_NONE, VALUE_STRING, VALUE_TOKEN };

typedef struct card {
  char keyword[9];
  int type;
  char value[MILL_FITS_MAX_VALUE]; /* string without quotes and trailing blanks, or the token */
} card;

/* What is being read, for messages. */
typedef struct place {
  const char *path;
  int i_hdu; /* 0-based */
  const char *name;
} place;

#define CUT "the file is cut or damaged: fetch it again"

#define FAIL_HDU(at, format, ...)                                                                  \
  MILL_FAIL(MILL_ERR_INPUT, "%s: HDU %d%s%s%s: " format, (at)->path, (at)->i_hdu + 1,              \
            (at)->name[0] ? " (" : "", (at)->name, (at)->name[0] ? ")" : "", __VA_ARGS__)

/* Copy the quoted string at text (its first byte is the quote) up to end;
 * returns what follows the closing quote, NULL when there is none. */
static const char *parse_string(const char *text, const char *end, char *value)
{
  size_t n = 0;
  for (const char *p = text + 1; p < end; p++) {
    if (*p == '\'') {
      if (p + 1 < end && p[1] == '\'') {
        p++;
      } else {
        while (n > 0 && value[n - 1] == ' ')
          n--;
        value[n] = '\0';
        return p + 1;
      }
    }
    value[n++] = *p;
  }
  return NULL;
}

/* Is keyword PREFIX followed by a number from 1?  Returns the number or 0.  TFORM01 is TFORM1, as
 * it is for CFITSIO. */
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

static int any_of(const char *keyword, const char *const *list)
{
  for (; *list; list++) /* of most cards no list has even the first letter */
    if (**list == *keyword && (strcmp(keyword, *list) == 0 || numbered(keyword, *list)))
      return 1;
  return 0;
}

/* CFITSIO copies values of these keywords into buffers as if they had the
 * right type; a value of another type is what makes it abort. */
static const char *const string_keywords[] = {"XTENSION", "EXTNAME", "TTYPE",    "TFORM",
                                              "TUNIT",    "TDISP",   "TDIM",     "ZCMPTYPE",
                                              "ZQUANTIZ", "ZNAME",   "ZTENSION", NULL};
static const char *const integer_keywords[] = {
    "BITPIX",   "NAXIS",  "PCOUNT",  "GCOUNT",   "TFIELDS", "THEAP", "TBCOL",
    "ZBITPIX",  "ZNAXIS", "ZPCOUNT", "ZTILE",    "ZGCOUNT", "TNULL", "BLANK",
    "EXTLEVEL", "EXTVER", "ZBLANK",  "ZDITHER0", NULL};
static const char *const real_keywords[] = {"BSCALE", "BZERO", "TSCAL", "TZERO",
                                            "ZSCALE", "ZZERO", NULL};
static const char *const logical_keywords[] = {"SIMPLE", "EXTEND",  "GROUPS",
                                               "ZIMAGE", "ZSIMPLE", NULL};

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
  char copy[MILL_FITS_MAX_VALUE];
  size_t n = 0;
  for (; text[n]; n++) {
    if (!strchr("+-.0123456789EeDd", text[n]))
      return 0; /* strtod would take nan, inf and hexadecimal */
    copy[n] = text[n] == 'D' || text[n] == 'd' ? 'E' : text[n];
  }
  copy[n] = '\0';
  char *end;
  *out = strtod(copy, &end);
  return n > 0 && *end == '\0' && isfinite(*out);
}

static int check_printable(const place *at, const char *text, int i_card)
{
  int err = MILL_OK;
  int n_bad = 0;
  for (int i = 0; i < CARD; i++)
    n_bad += text[i] < ' ' || text[i] > '~';
  if (n_bad > 0)
    FAIL_HDU(at, "card %d of the header holds a byte that is not printable text; " CUT, i_card + 1);
done:
  return err;
}

/* Check one card, of printable text, and take it apart. */
static int parse_card(const place *at, const char *text, int i_card, card *out)
{
  int err = MILL_OK;
  memset(out, 0, sizeof *out);
  int n = 0;
  while (n < 8 && text[n] != ' ')
    n++;
  for (int i = 0; i < 8; i++) {
    const char c = text[i];
    if (i < n ? !(isupper((unsigned char)c) || isdigit((unsigned char)c) || c == '-' || c == '_')
              : c != ' ')
      FAIL_HDU(at, "card %d has the bad keyword '%.8s'; " CUT, i_card + 1, text);
  }
  memcpy(out->keyword, text, (size_t)n);

  const char *end = text + CARD;
  const char *p = text + 10;
  if (n == 0 || strcmp(out->keyword, "COMMENT") == 0 || strcmp(out->keyword, "HISTORY") == 0)
    goto done;
  const int is_continue = strcmp(out->keyword, "CONTINUE") == 0;
  if (strcmp(out->keyword, "HIERARCH") == 0) {
    p = memchr(text, '=', CARD);
    if (!p)
      goto done;
    p++;
  } else if (!is_continue && (text[8] != '=' || text[9] != ' ')) {
    if (any_of(out->keyword, string_keywords) || any_of(out->keyword, integer_keywords) ||
        any_of(out->keyword, real_keywords) || any_of(out->keyword, logical_keywords))
      FAIL_HDU(at, "card %d (%s) has no value; " CUT, i_card + 1, out->keyword);
    goto done;
  }
  while (p < end && *p == ' ')
    p++;
  if (p < end && *p == '\'') {
    out->type = VALUE_STRING;
    p = parse_string(p, end, out->value);
    if (!p)
      FAIL_HDU(at, "card %d (%s) is a string without its closing quote; " CUT, i_card + 1,
               out->keyword);
    while (p < end && *p == ' ')
      p++;
    if (p < end && *p != '/')
      FAIL_HDU(at, "card %d (%s) has text after its closing quote; " CUT, i_card + 1, out->keyword);
  } else if (!is_continue) {
    size_t length = 0;
    while (p < end && *p != ' ' && *p != '/')
      out->value[length++] = *p++;
    out->type = length ? VALUE_TOKEN : VALUE_NONE;
  }

  int64_t integer;
  double real;
  const char *wanted = NULL;
  if (any_of(out->keyword, string_keywords))
    wanted = out->type == VALUE_STRING ? NULL : "a string in quotes";
  else if (any_of(out->keyword, integer_keywords))
    wanted = out->type == VALUE_TOKEN && parse_integer(out->value, &integer) ? NULL : "an integer";
  else if (any_of(out->keyword, real_keywords))
    wanted = out->type == VALUE_TOKEN && parse_real(out->value, &real) ? NULL : "a finite number";
  else if (any_of(out->keyword, logical_keywords))
    wanted = out->type == VALUE_TOKEN && strlen(out->value) == 1 && strchr("TF", out->value[0])
                 ? NULL
                 : "T or F";
  if (wanted)
    FAIL_HDU(at, "card %d (%s) must be %s; " CUT, i_card + 1, out->keyword, wanted);
done:
  return err;
}

/* ---- one header ------------------------------------------------------- */

typedef struct header {
  char *text; /* [n_card][CARD], without END */
  int n_card;
  int64_t bytes; /* with END and its padding */
} header;

int64_t mill_fits_read_at(int fd, void *out, int64_t n, int64_t offset)
{
  int64_t n_done = 0;
  while (n_done < n) {
    const ssize_t got =
        pread(fd, (char *)out + n_done, (size_t)(n - n_done), (off_t)(offset + n_done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return -1;
    if (got == 0)
      break;
    n_done += got;
  }
  return n_done;
}

/* Read blocks until END; *out owns its text. */
static int read_header(const place *at, int fd, int64_t start, header *out)
{
  int err = MILL_OK;
  static const char end_card[] = "END     ";
  size_t capacity = 0;
  for (;;) {
    const size_t used = (size_t)out->n_card * CARD;
    if (used + BLOCK > capacity) {
      capacity = capacity ? 2 * capacity : 8 * BLOCK;
      char *grown = realloc(out->text, capacity);
      if (!grown)
        MILL_FAIL(MILL_ERR_MEMORY, "no memory for %zu bytes of header", capacity);
      out->text = grown;
    }
    const int64_t got = mill_fits_read_at(fd, out->text + used, BLOCK, start + out->bytes);
    if (got < 0)
      MILL_FAIL(MILL_ERR_INPUT, "%s: cannot be read: %s", at->path, strerror(errno));
    if (got < BLOCK)
      FAIL_HDU(at, "the file ends inside this header (no END card); %s", CUT);
    out->bytes += BLOCK;
    for (int i = 0; i < BLOCK / CARD; i++) {
      const char *text = out->text + used + (size_t)i * CARD;
      if (memcmp(text, end_card, 8) == 0) {
        for (int j = 8; j < CARD; j++)
          if (text[j] != ' ')
            FAIL_HDU(at, "text follows END in card %d; " CUT, out->n_card + 1);
        goto done;
      }
      /* checked at once, so that data taken for a header stops here */
      MILL_TRY(check_printable(at, text, out->n_card));
      if (++out->n_card >= MAX_CARD)
        FAIL_HDU(at, "the header has more than %d cards and no END; " CUT, MAX_CARD);
    }
  }
done:
  return err;
}

/* EXTNAME in upper case, before anything else is checked, for the messages. */
static void find_name(const place *at, const header *h, char *name)
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

/* Value of the card that the standard puts at this place. */
static int card_at(const place *at, const header *h, int i_card, const char *keyword, card *out)
{
  int err = MILL_OK;
  memset(out, 0, sizeof *out);
  if (i_card < h->n_card)
    MILL_TRY(parse_card(at, h->text + (size_t)i_card * CARD, i_card, out));
  if (strcmp(out->keyword, keyword) != 0)
    FAIL_HDU(at, "card %d is '%s', not the mandatory %s; %s", i_card + 1, out->keyword, keyword,
             CUT);
done:
  return err;
}

static int integer_at(const place *at, const header *h, int i_card, const char *keyword,
                      int64_t min, int64_t max, int64_t *out)
{
  int err = MILL_OK;
  card c;
  MILL_TRY(card_at(at, h, i_card, keyword, &c));
  if (c.type != VALUE_TOKEN || !parse_integer(c.value, out) || *out < min || *out > max)
    FAIL_HDU(at, "%s = '%s' is out of range; " CUT, keyword, c.value);
done:
  return err;
}

static int good_bitpix(int64_t bitpix)
{
  return bitpix == 8 || bitpix == 16 || bitpix == 32 || bitpix == 64 || bitpix == -32 ||
         bitpix == -64;
}

/* Bytes of a binary table's field, -1 when its TFORM is malformed. */
static int64_t field_bytes(const char *form)
{
  int64_t repeat = 0;
  const char *p = form;
  while (*p == ' ')
    p++;
  if (isdigit((unsigned char)*p)) {
    for (; isdigit((unsigned char)*p); p++) {
      repeat = repeat * 10 + (*p - '0');
      if (repeat > INT32_MAX)
        return -1;
    }
  } else {
    repeat = 1;
  }
  static const char codes[] = "LBAIJEKDCMPQ";
  static const int bytes[] = {1, 1, 1, 2, 4, 4, 8, 8, 8, 16, 8, 16};
  if (*p == '\0')
    return -1;
  if (*p == 'X')
    return (repeat + 7) / 8;
  const char *code = strchr(codes, *p);
  if (!code)
    return -1;
  if ((*p == 'P' || *p == 'Q') && (repeat > 1 || p[1] == '\0' || !strchr("LXBIJKAEDCM", p[1])))
    return -1;
  if (*p == 'A' && p[1]) { /* rAw: strings of w in r bytes */
    int64_t width;
    if (!parse_integer(p + 1, &width) || width < 1 || width > repeat)
      return -1;
  }
  return repeat * bytes[code - codes];
}

/* What the cards after the mandatory ones say; kept while they are walked. */
typedef struct table_walk {
  int n_field;
  int64_t row_bytes;
  char have_form[MAX_FIELD + 1];
  int64_t heap_start;
  int64_t image_limit; /* bytes that a compressed image may have */
  int have_heap, have_z_bitpix, have_z_n_axis, have_z_type;
  int have_z_axis[MILL_FITS_MAX_AXIS + 1], have_z_tile[MILL_FITS_MAX_AXIS + 1];
  int have_z_name[4], have_z_value[4];
  int z_image, n_block, byte_pix;
  char z_type[MILL_FITS_MAX_VALUE], z_name[4][MILL_FITS_MAX_VALUE];
  int64_t z_value[4]; /* of ZVALn, by n */
  int64_t z_bitpix, z_axis[MILL_FITS_MAX_AXIS + 1], z_n_axis,
      z_tile[MILL_FITS_MAX_AXIS + 1]; /* z_tile -1: no such card */
} table_walk;

static int walk_table_card(const place *at, const card *c, table_walk *t)
{
  int err = MILL_OK;
  int64_t value = 0;
  const int is_integer = c->type == VALUE_TOKEN && parse_integer(c->value, &value);
  const int i_form = numbered(c->keyword, "TFORM");
  if (i_form > 0 && i_form <= t->n_field) {
    const int64_t bytes = field_bytes(c->value);
    if (bytes < 0)
      FAIL_HDU(at, "%s = '%s' is no column format; " CUT, c->keyword, c->value);
    if (t->have_form[i_form])
      FAIL_HDU(at, "%s stands twice; " CUT, c->keyword);
    t->have_form[i_form] = 1;
    t->row_bytes += bytes; /* at most 999 times 2^35 */
  }
  const int i_axis = numbered(c->keyword, "ZNAXIS");
  const int i_tile = numbered(c->keyword, "ZTILE");
  const int i_name = numbered(c->keyword, "ZNAME");
  const int i_value = numbered(c->keyword, "ZVAL");
  int *have = NULL;
  if (i_axis > 0 && i_axis <= MILL_FITS_MAX_AXIS) {
    t->z_axis[i_axis] = value;
    have = &t->have_z_axis[i_axis];
  } else if (i_tile > 0 && i_tile <= MILL_FITS_MAX_AXIS) {
    t->z_tile[i_tile] = value < 0 ? 0 : value;
    have = &t->have_z_tile[i_tile];
  } else if (strcmp(c->keyword, "ZNAXIS") == 0) {
    t->z_n_axis = value;
    have = &t->have_z_n_axis;
  } else if (strcmp(c->keyword, "ZBITPIX") == 0) {
    t->z_bitpix = value;
    have = &t->have_z_bitpix;
  } else if (strcmp(c->keyword, "THEAP") == 0 && is_integer) {
    t->heap_start = value;
    have = &t->have_heap;
  } else if (strcmp(c->keyword, "ZCMPTYPE") == 0) {
    memcpy(t->z_type, c->value, sizeof t->z_type);
    have = &t->have_z_type;
  } else if (i_name > 0 && i_name < 4) {
    memcpy(t->z_name[i_name], c->value, sizeof t->z_name[0]);
    have = &t->have_z_name[i_name];
  } else if (i_value > 0 && i_value < 4) {
    t->z_value[i_value] = is_integer ? value : -1;
    have = &t->have_z_value[i_value];
  } else if (strcmp(c->keyword, "ZIMAGE") == 0) {
    t->z_image = c->value[0] == 'T';
  } else if (strcmp(c->keyword, "ZDITHER0") == 0 && (value < 1 || value > 10000)) {
    /* CFITSIO takes it as the place in a table of random numbers */
    FAIL_HDU(at, "ZDITHER0 = '%s', expected 1 to 10000; " CUT, c->value);
  }
  /* CFITSIO takes the first of some keywords and the last of others */
  if (have && *have)
    FAIL_HDU(at, "%s stands twice; " CUT, c->keyword);
  if (have)
    *have = 1;
done:
  return err;
}

static int is_rice(const table_walk *t)
{
  return strcmp(t->z_type, "RICE_1") == 0 || strcmp(t->z_type, "RICE_ONE") == 0;
}

/* The image that a table of compressed tiles stands for. */
static int take_compressed(const place *at, table_walk *t, mill_fits_hdu *hdu)
{
  int err = MILL_OK;
  if (!good_bitpix(t->z_bitpix) || t->z_n_axis < 1 || t->z_n_axis > MILL_FITS_MAX_AXIS)
    FAIL_HDU(at, "the compressed image has ZBITPIX %lld and ZNAXIS %lld; " CUT,
             (long long)t->z_bitpix, (long long)t->z_n_axis);
  /* CFITSIO's other decoders trust their input */
  if (!is_rice(t) && strcmp(t->z_type, "GZIP_1") != 0 && strcmp(t->z_type, "GZIP_2") != 0)
    FAIL_HDU(at, "tiles compressed by '%s', only RICE_1, GZIP_1 and GZIP_2 are read; funpack it",
             t->z_type);
  if (is_rice(t)) {
    /* CFITSIO goes by their places, not by their names */
    static const char *const name[] = {"BLOCKSIZE", "BYTEPIX"};
    for (int i = 1; i <= 2; i++)
      if ((t->have_z_value[i] || i == 1) &&
          (strcmp(t->z_name[i], name[i - 1]) != 0 || t->z_value[i] < 1 || t->z_value[i] > 32))
        FAIL_HDU(at, "parameter %d of RICE compression is %s = %lld; " CUT, i, t->z_name[i],
                 (long long)t->z_value[i]);
    t->n_block = (int)t->z_value[1];
    t->byte_pix = t->have_z_value[2] ? (int)t->z_value[2] : 4;
    if (t->byte_pix != (t->z_bitpix < 0 ? 4 : t->z_bitpix / 8) || t->byte_pix > 4)
      FAIL_HDU(at, "RICE compression of BYTEPIX %d for ZBITPIX %lld; " CUT, t->byte_pix,
               (long long)t->z_bitpix);
  }
  hdu->kind = MILL_FITS_IMAGE;
  hdu->compressed = 1;
  hdu->bitpix = (int)t->z_bitpix;
  hdu->n_axis = (int)t->z_n_axis;
  const int64_t n_row = hdu->axis[1];
  int64_t n_tile = 1, n_pix = 1;
  for (int i = 0; i < hdu->n_axis; i++) {
    const int64_t axis = t->z_axis[i + 1];
    /* without ZTILEn a tile is one line of the image */
    const int64_t tile = t->z_tile[i + 1] >= 0 ? t->z_tile[i + 1] : i == 0 ? axis : 1;
    if (axis < 1 || axis > INT32_MAX || tile < 1 || tile > axis)
      FAIL_HDU(at, "the compressed image has axis %d of %lld in tiles of %lld; " CUT, i + 1,
               (long long)axis, (long long)tile);
    hdu->axis[i] = axis;
    t->z_tile[i + 1] = tile;
    if (__builtin_mul_overflow(n_tile, (axis + tile - 1) / tile, &n_tile) ||
        __builtin_mul_overflow(n_pix, axis, &n_pix) || n_pix > INT64_MAX / 8)
      FAIL_HDU(at, "the compressed image is impossibly large; %s", CUT);
  }
  const int64_t image_bytes = n_pix * (llabs(t->z_bitpix) / 8);
  if (image_bytes > t->image_limit)
    FAIL_HDU(at,
             "the compressed image unpacks to %lld MiB, more than the limit of %lld MiB; raise "
             "gzip_limit_mib, or funpack it",
             (long long)(image_bytes >> 20), (long long)(t->image_limit >> 20));
  if (n_tile != n_row)
    FAIL_HDU(at, "%lld compressed tiles instead of %lld; " CUT, (long long)n_row,
             (long long)n_tile);
done:
  return err;
}

/* Walk a Rice stream without keeping its pixels; 1 when it ends inside its bytes.
 * CFITSIO's decoder (after Rice, Yeh and Miller 1993, JPL 93-1) does not look. */
static int good_rice(const unsigned char *bytes, int64_t n_bytes, int64_t n_pix,
                     const table_walk *t)
{
  const int is_4 = t->byte_pix == 4, is_2 = t->byte_pix == 2;
  const int fs_bits = is_4 ? 5 : is_2 ? 4 : 3;
  const int fs_max = is_4 ? 25 : is_2 ? 14 : 6;
  const int64_t end = 8 * n_bytes;
  int64_t at = 8 * t->byte_pix; /* the first pixel as it is */
  for (int64_t i = 0; i < n_pix; i += t->n_block) {
    const int64_t n = n_pix - i < t->n_block ? n_pix - i : t->n_block;
    int fs = 0;
    if (at + fs_bits > end)
      return 0;
    for (int j = 0; j < fs_bits; j++, at++)
      fs = fs << 1 | (bytes[at / 8] >> (7 - at % 8) & 1);
    fs--;
    if (fs > fs_max)
      return 0;
    if (fs == fs_max)
      at += n * 8 * t->byte_pix;
    else if (fs >= 0)
      for (int64_t j = 0; j < n; j++) {
        while (at < end && !(bytes[at / 8] >> (7 - at % 8) & 1))
          at++;
        at += 1 + fs;
        if (at > end)
          return 0;
      }
    if (at > end)
      return 0;
  }
  return 1;
}

/* Unpack a gzip stream without keeping it; 0 when it is cut or has more than most bytes: then
 * CFITSIO 4.2 asks for more and more memory, of a cut one without end.  What else may be wrong
 * with it CFITSIO finds when the tile is read, and that costs only its row. */
static int good_gzip(unsigned char *bytes, int64_t n_bytes, int64_t most)
{
  unsigned char out[1 << 14];
  z_stream z = {.next_in = bytes, .avail_in = (uInt)n_bytes};
  int status = Z_OK;
  int64_t n_out = 0;
  if (n_bytes > UINT_MAX || inflateInit2(&z, 15 + 16) != Z_OK)
    return 0;
  while (status == Z_OK && n_out <= most) {
    z.next_out = out;
    z.avail_out = sizeof out;
    status = inflate(&z, Z_NO_FLUSH);
    n_out += (int64_t)(sizeof out - z.avail_out);
  }
  inflateEnd(&z);
  return status != Z_BUF_ERROR && n_out <= most;
}

/* Pixels of a tile, fewer at the far edges of the image. */
static int64_t tile_pixels(const mill_fits_hdu *image, const table_walk *t, int64_t i_tile)
{
  int64_t n_pix = 1;
  for (int i = 0; i < image->n_axis; i++) {
    const int64_t tile = t->z_tile[i + 1], n_tile = (image->axis[i] + tile - 1) / tile;
    const int64_t start = i_tile % n_tile * tile;
    n_pix *= image->axis[i] - start < tile ? image->axis[i] - start : tile;
    i_tile /= n_tile;
  }
  return n_pix;
}

/* No tile may lie outside the heap, where CFITSIO would take another HDU's
 * bytes, and no stream may run out of its own. */
static int check_tiles(const place *at, const header *h, const mill_fits_guard *guard,
                       const mill_fits_hdu *table, const mill_fits_hdu *image, const table_walk *t)
{
  int err = MILL_OK;
  const int64_t row_bytes = table->axis[0], n_row = table->axis[1];
  const int64_t heap_bytes = table->data_bytes - t->heap_start;
  char *row = NULL;
  unsigned char *tile = NULL;
  int64_t tile_capacity = 0;
  int i_data = -1, i_gzip = -1; /* fields of streams; gzip where Rice or quantizing would lose */
  int64_t offset[MAX_FIELD];
  int element[MAX_FIELD], wide[MAX_FIELD], n = 0;
  int64_t width[MAX_FIELD];
  char form[MAX_FIELD][MILL_FITS_MAX_VALUE];
  for (int i = 0; i < h->n_card; i++) {
    card c;
    MILL_TRY(parse_card(at, h->text + (size_t)i * CARD, i, &c));
    const int i_form = numbered(c.keyword, "TFORM");
    const int i_type = numbered(c.keyword, "TTYPE");
    if (i_type > 0 && i_type <= t->n_field && strcasecmp(c.value, "COMPRESSED_DATA") == 0) {
      if (i_data >= 0)
        FAIL_HDU(at, "two columns of compressed tiles; %s", CUT);
      i_data = i_type - 1;
    }
    if (i_type > 0 && i_type <= t->n_field && strcasecmp(c.value, "GZIP_COMPRESSED_DATA") == 0) {
      if (i_gzip >= 0)
        FAIL_HDU(at, "two columns of tiles compressed by gzip; %s", CUT);
      i_gzip = i_type - 1;
    }
    if (i_form > 0 && i_form <= t->n_field) {
      memcpy(form[i_form - 1], c.value, sizeof c.value);
      width[i_form - 1] = field_bytes(c.value);
    }
  }
  int64_t at_byte = 0;
  int i_rice = -1, is_gzip[MAX_FIELD];   /* which of the descriptors are those of streams */
  for (int i = 0; i < t->n_field; i++) { /* each has its TFORM: checked before */
    const char *p = form[i] + strspn(form[i], " 0123456789");
    if ((*p == 'P' || *p == 'Q') && width[i] > 0) {
      static const char codes[] = "LXBAIJEKDCM";
      static const int bytes[] = {1, 1, 1, 1, 2, 4, 4, 8, 8, 8, 16};
      if (i == i_data && is_rice(t)) {
        if (p[1] != 'B')
          FAIL_HDU(at, "TFORM%d = '%s' for RICE streams; " CUT, i + 1, form[i]);
        i_rice = n;
      }
      is_gzip[n] = i == i_gzip || (i == i_data && !is_rice(t));
      offset[n] = at_byte;
      wide[n] = *p == 'Q';
      element[n++] = bytes[strchr(codes, p[1]) - codes];
    }
    at_byte += width[i];
  }
  if (i_data < 0 || (is_rice(t) && i_rice < 0))
    FAIL_HDU(at, "no column of compressed tiles; %s", CUT);
  MILL_TRY(MILL_ALLOC(row_bytes, &row));
  int64_t all_bytes = 0;
  for (int64_t i_row = 0; i_row < n_row; i_row++) {
    int64_t packed_bytes = 0;
    if (mill_fits_read_at(guard->fd, row, row_bytes, table->data_start + i_row * row_bytes) !=
        row_bytes)
      FAIL_HDU(at, "row %lld cannot be read; " CUT, (long long)i_row + 1);
    for (int i = 0; i < n; i++) {
      const int size = wide[i] ? 8 : 4;
      uint64_t value[2] = {0, 0};
      for (int j = 0; j < 2 * size; j++)
        value[j / size] = value[j / size] << 8 | (unsigned char)row[offset[i] + j];
      if (value[0] > (uint64_t)heap_bytes / (uint64_t)element[i] ||
          value[1] > (uint64_t)heap_bytes ||
          value[0] * (uint64_t)element[i] > (uint64_t)heap_bytes - value[1])
        FAIL_HDU(at, "tile %lld points outside the compressed data; " CUT, (long long)i_row + 1);
      const int64_t n_bytes = (int64_t)value[0] * element[i];
      packed_bytes += n_bytes;
      if ((i != i_rice && !is_gzip[i]) || n_bytes == 0)
        continue;
      const int64_t n_pix = tile_pixels(image, t, i_row);
      if (n_bytes > tile_capacity) {
        mill_free(tile);
        tile_capacity = 2 * n_bytes;
        MILL_TRY(MILL_ALLOC(tile_capacity, &tile));
      }
      if (mill_fits_read_at(guard->fd, tile, n_bytes,
                            table->data_start + t->heap_start + (int64_t)value[1]) != n_bytes ||
          !(i == i_rice ? good_rice(tile, n_bytes, n_pix, t) : good_gzip(tile, n_bytes, 8 * n_pix)))
        FAIL_HDU(at, "the compressed data of tile %lld are damaged; fetch the file again",
                 (long long)i_row + 1);
    }
    /* neither a tile of pixels that nothing stands for, nor one that is all of them */
    const int64_t tile_bytes = tile_pixels(image, t, i_row) * (llabs(t->z_bitpix) / 8);
    all_bytes += packed_bytes;
    if (tile_bytes / MAX_PACKING > packed_bytes || all_bytes > heap_bytes)
      FAIL_HDU(at, "tile %lld has too few bytes for its pixels; " CUT, (long long)i_row + 1);
  }
done:
  mill_free(row);
  mill_free(tile);
  return err;
}

/* Walk one HDU from start; *next is where the following one begins.  image_limit: bytes that a
 * compressed image may unpack to. */
static int walk_hdu(mill_fits_guard *guard, int i_hdu, int64_t start, int64_t size,
                    int64_t image_limit, int64_t *next)
{
  int err = MILL_OK;
  mill_fits_hdu *hdu = &guard->hdu[i_hdu];
  place at = {guard->path, i_hdu, hdu->name};
  header h = {0};
  table_walk *t = NULL;
  MILL_TRY(read_header(&at, guard->fd, start, &h));
  find_name(&at, &h, hdu->name);
  MILL_TRY(MILL_ALLOC(1, &t));
  card c;
  int binary_table = 0;
  if (i_hdu == 0) {
    MILL_TRY(card_at(&at, &h, 0, "SIMPLE", &c));
    if (c.value[0] != 'T')
      FAIL_HDU(&at, "SIMPLE is not T: not a standard FITS file; %s", CUT);
  } else {
    MILL_TRY(card_at(&at, &h, 0, "XTENSION", &c));
    binary_table = strcmp(c.value, "BINTABLE") == 0;
    if (binary_table)
      hdu->kind = MILL_FITS_TABLE;
    else if (strcmp(c.value, "IMAGE") != 0)
      hdu->kind = MILL_FITS_OTHER;
  }
  const int ascii_table = i_hdu > 0 && strcmp(c.value, "TABLE") == 0;
  int64_t bitpix, n_axis, p_count = 0, g_count = 1, n_field = 0;
  MILL_TRY(integer_at(&at, &h, 1, "BITPIX", -64, 64, &bitpix));
  MILL_TRY(integer_at(&at, &h, 2, "NAXIS", 0, MILL_FITS_MAX_AXIS, &n_axis));
  if (!good_bitpix(bitpix))
    FAIL_HDU(&at, "BITPIX = %lld is none of the standard's; " CUT, (long long)bitpix);
  if ((binary_table || ascii_table) && (bitpix != 8 || n_axis != 2))
    FAIL_HDU(&at, "a table with BITPIX %lld and NAXIS %lld; " CUT, (long long)bitpix,
             (long long)n_axis);
  int i_card = 3;
  int64_t n_element = n_axis > 0;
  for (int i = 0; i < n_axis; i++) {
    char keyword[16];
    snprintf(keyword, sizeof keyword, "NAXIS%d", i + 1);
    MILL_TRY(integer_at(&at, &h, i_card++, keyword, 0, INT64_MAX, &hdu->axis[i]));
    if (__builtin_mul_overflow(n_element, hdu->axis[i], &n_element))
      FAIL_HDU(&at, "its axes multiply to more than a file can hold; %s", CUT);
  }
  /* rows without a byte may be as many as one likes, and readers keep something for each */
  if ((binary_table || ascii_table) && hdu->axis[0] == 0 && hdu->axis[1] > 0)
    FAIL_HDU(&at, "its %lld rows have no bytes; " CUT, (long long)hdu->axis[1]);
  hdu->bitpix = (int)bitpix;
  hdu->n_axis = (int)n_axis;
  if (i_hdu > 0) {
    MILL_TRY(integer_at(&at, &h, i_card++, "PCOUNT", 0, INT64_MAX, &p_count));
    MILL_TRY(integer_at(&at, &h, i_card++, "GCOUNT", 1, 1, &g_count));
    if (hdu->kind == MILL_FITS_IMAGE && p_count != 0)
      FAIL_HDU(&at, "an image with PCOUNT %lld; " CUT, (long long)p_count);
  }
  if (binary_table || ascii_table)
    MILL_TRY(integer_at(&at, &h, i_card++, "TFIELDS", 0, MAX_FIELD, &n_field));
  if (__builtin_add_overflow(n_element, p_count, &n_element) ||
      __builtin_mul_overflow(n_element, llabs(bitpix) / 8, &hdu->data_bytes))
    FAIL_HDU(&at, "its size is more than a file can hold; %s", CUT);
  hdu->data_start = start + h.bytes;
  if (hdu->data_bytes > size - hdu->data_start ||
      (hdu->data_bytes + BLOCK - 1) / BLOCK * BLOCK > size - hdu->data_start)
    FAIL_HDU(&at, "needs %lld bytes of data from byte %lld, but the file ends at %lld; " CUT,
             (long long)hdu->data_bytes, (long long)hdu->data_start, (long long)size);
  *next = hdu->data_start + (hdu->data_bytes + BLOCK - 1) / BLOCK * BLOCK;

  t->n_field = binary_table ? (int)n_field : 0;
  t->image_limit = image_limit;
  t->heap_start = binary_table ? hdu->axis[0] * hdu->axis[1] : 0;
  const int64_t heap_min = t->heap_start;
  for (int i = 0; i <= MILL_FITS_MAX_AXIS; i++)
    t->z_tile[i] = -1;
  static const char *const once[] = {"SIMPLE", "XTENSION", "BITPIX", "NAXIS",  "PCOUNT",
                                     "GCOUNT", "TFIELDS",  "GROUPS", "ZIMAGE", NULL};
  int have_zimage = 0;
  for (int i = i_card; i < h.n_card; i++) {
    MILL_TRY(parse_card(&at, h.text + (size_t)i * CARD, i, &c));
    /* CFITSIO takes some keywords from wherever they stand last */
    if (any_of(c.keyword, once)) {
      const int is_zimage = strcmp(c.keyword, "ZIMAGE") == 0 && !have_zimage;
      const int is_groups = strcmp(c.keyword, "GROUPS") == 0 && c.value[0] == 'F';
      const int primary_counts =
          i_hdu == 0 && ((strcmp(c.keyword, "PCOUNT") == 0 && strcmp(c.value, "0") == 0) ||
                         (strcmp(c.keyword, "GCOUNT") == 0 && strcmp(c.value, "1") == 0));
      /* LAMOST leaves the axes of the image that the primary once had; nobody looks at them */
      const int idle_axis = i_hdu == 0 && n_axis == 0 && numbered(c.keyword, "NAXIS");
      have_zimage |= is_zimage;
      if (!is_zimage && !is_groups && !primary_counts && !idle_axis)
        FAIL_HDU(&at, "card %d (%s) does not belong there; " CUT, i + 1, c.keyword);
    }
    if (binary_table)
      MILL_TRY(walk_table_card(&at, &c, t));
  }
  if (binary_table) {
    for (int i = 1; i <= t->n_field; i++)
      if (!t->have_form[i])
        FAIL_HDU(&at, "TFORM%d is missing; " CUT, i);
    if (t->row_bytes != hdu->axis[0])
      FAIL_HDU(&at, "its columns are %lld bytes wide, its rows %lld; " CUT, (long long)t->row_bytes,
               (long long)hdu->axis[0]);
    if (t->heap_start < heap_min || t->heap_start > hdu->data_bytes)
      FAIL_HDU(&at, "THEAP = %lld lies outside the data; " CUT, (long long)t->heap_start);
    if (t->z_image) {
      const mill_fits_hdu table = *hdu;
      MILL_TRY(take_compressed(&at, t, hdu));
      MILL_TRY(check_tiles(&at, &h, guard, &table, hdu, t));
    }
  }
done:
  free(h.text);
  mill_free(t);
  return err;
}

static int walk_file(mill_fits_guard *guard, int64_t image_limit)
{
  int err = MILL_OK;
  struct stat st;
  if (fstat(guard->fd, &st) != 0)
    MILL_FAIL(MILL_ERR_INPUT, "%s: cannot be examined: %s", guard->path, strerror(errno));
  const int64_t size = (int64_t)st.st_size;
  char first[10] = "";
  if (size == 0)
    MILL_FAIL(MILL_ERR_INPUT, "%s: the file is empty; fetch it again", guard->path);
  if (mill_fits_read_at(guard->fd, first, 9, 0) != 9 || memcmp(first, "SIMPLE  =", 9) != 0)
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: not a FITS file (it does not begin with SIMPLE); give a FITS file, plain or "
              "gzip",
              guard->path);
  int capacity = 0;
  for (int64_t start = 0; start < size;) {
    if (guard->n_hdu == MAX_HDU)
      MILL_FAIL(MILL_ERR_INPUT, "%s: more than %d HDUs: not a spectra file", guard->path, MAX_HDU);
    if (guard->n_hdu == capacity) {
      capacity = capacity ? 2 * capacity : 32;
      mill_fits_hdu *grown = realloc(guard->hdu, (size_t)capacity * sizeof *grown);
      if (!grown)
        MILL_FAIL(MILL_ERR_MEMORY, "no memory for %d HDUs", capacity);
      guard->hdu = grown;
    }
    memset(&guard->hdu[guard->n_hdu], 0, sizeof *guard->hdu);
    MILL_TRY(walk_hdu(guard, guard->n_hdu, start, size, image_limit, &start));
    guard->n_hdu++;
  }
done:
  return err;
}

static int64_t limit_bytes(const mill_open_limits *limits)
{
  const double limit_mib = limits ? limits->gzip_limit_mib : MILL_GZIP_LIMIT_MIB;
  return limit_mib > 0.0 ? (int64_t)fmin(limit_mib * 1048576.0, 0x1p62) : 0;
}

/* ---- the file --------------------------------------------------------- */

int mill_fits_guard_open(const char *path, const mill_open_limits *limits, mill_fits_guard **out)
{
  int err = MILL_OK;
  mill_fits_guard *guard = NULL;
  const int64_t limit = limit_bytes(limits);
  *out = NULL;
  if (strlen(path) >= MILL_FITS_MAX_PATH)
    MILL_FAIL(MILL_ERR_INPUT, "%.100s...: the path is longer than %d bytes", path,
              MILL_FITS_MAX_PATH - 1);
  MILL_TRY(MILL_ALLOC(1, &guard));
  strcpy(guard->path, path);
  MILL_TRY(mill_regular_open(path, "a FITS file", MILL_ERR_INPUT, &guard->fd));
  struct stat st;
  if (fstat(guard->fd, &st) != 0)
    MILL_FAIL(MILL_ERR_INPUT, "%s: cannot be examined: %s", path, strerror(errno));
  guard->file_size = (int64_t)st.st_size;
  guard->file_mtime = (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec;
  unsigned char magic[2];
  const int64_t n_magic = mill_fits_read_at(guard->fd, magic, 2, 0);
  if (n_magic < 0)
    MILL_FAIL(MILL_ERR_INPUT, "%s: cannot be read: %s; check the file system", path,
              strerror(errno));
  if (n_magic == 2 && magic[0] == 0x1f && magic[1] == 0x8b) {
    MILL_TRY(
        mill_gunzip(path, guard->fd, limit, limits ? limits->scratch : NULL, &guard->unpacked));
    close(guard->fd);
    guard->fd = guard->unpacked.fd;
    guard->is_unpacked = 1;
  }
  MILL_TRY(walk_file(guard, limit));
  *out = guard;
  guard = NULL;
done:
  mill_fits_guard_close(guard);
  return err;
}

void mill_fits_guard_close(mill_fits_guard *guard)
{
  if (!guard)
    return;
  if (guard->is_unpacked)
    mill_gunzip_close(&guard->unpacked);
  else if (guard->fd >= 0)
    close(guard->fd);
  free(guard->hdu);
  mill_free(guard);
}
