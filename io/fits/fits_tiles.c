/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/fits/fits_walk.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

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

int mill_fits_good_bitpix(int64_t bitpix)
{
  return bitpix == 8 || bitpix == 16 || bitpix == 32 || bitpix == 64 || bitpix == -32 ||
         bitpix == -64;
}

/* most bytes of pixels per byte of a tile: 1032 by deflate, times 2 for doubles stored as int32 */
enum { MAX_PACKING = 2100 };

/* A tile-compressed image. */
typedef struct image {
  int is_rice, n_block, byte_pix; /* for Rice only: BLOCKSIZE and BYTEPIX */
  int pix_bytes;                  /* bytes per unpacked pixel */
  int64_t tile[MILL_FITS_MAX_AXIS];
} image;

/* A column of descriptors, which point to compressed streams in the heap. */
typedef struct stream_column {
  enum { STREAM_OTHER, STREAM_RICE, STREAM_GZIP } kind;
  int64_t offset;    /* in bytes, within a row */
  int is_wide;       /* 1: 64-bit descriptors */
  int element_bytes; /* bytes per element of a stream */
} stream_column;

/* ---- the header ------------------------------------------------------- */

/* Check Rice's parameters.  CFITSIO knows them by their order, not by name, so check the order. */
static int take_rice(const mill_fits_place *at, const mill_fits_table *table, image *im)
{
  static const char *const name[] = {"", "BLOCKSIZE", "BYTEPIX"};
  const mill_fits_key *zname = table->key[MILL_KEY_ZNAME], *zval = table->key[MILL_KEY_ZVAL];
  const int64_t bitpix = table->key[MILL_KEY_ZBITPIX][0].value; /* < 0: reals, packed as int32 */
  for (int i = 1; i <= 2; i++)
    if ((zval[i].have || i == 1) && /* BYTEPIX may be missing */
        (strcmp(zname[i].text, name[i]) != 0 || zval[i].value < 1 || zval[i].value > 32))
      return ERROR_HDU(at, "parameter %d of RICE compression is %s = %lld; " BAD, i, zname[i].text,
                       (long long)zval[i].value);
  im->n_block = (int)zval[1].value;
  im->byte_pix = zval[2].have ? (int)zval[2].value : 4;
  if (im->byte_pix != (bitpix < 0 ? 4 : bitpix / 8) || im->byte_pix > 4)
    return ERROR_HDU(at,
                     "RICE compression has BYTEPIX %d for ZBITPIX %lld, expected 1 for 8, 2 for "
                     "16, or 4 for 32, -32 or -64; " BAD,
                     im->byte_pix, (long long)bitpix);
  return MILL_OK;
}

/* Set the axes of the image and of its tiles from keywords; n_row: tiles in the table. */
static int take_axes(const mill_fits_place *at, const mill_fits_table *table, int64_t n_row,
                     int64_t image_limit, image *im, mill_fits_hdu *hdu)
{
  int64_t n_tile = 1, n_pix = 1;
  for (int i = 0; i < hdu->n_axis; i++) {
    const mill_fits_key *key = &table->key[MILL_KEY_ZTILE][i + 1];
    const int64_t axis = table->key[MILL_KEY_ZNAXIS][i + 1].value;
    int64_t tile = i == 0 ? axis : 1; /* without ZTILEn a tile is one line of the image */
    if (key->have)
      tile = key->value < 0 ? 0 : key->value; /* 0 is refused below */
    if (axis < 1 || axis > INT32_MAX || tile < 1 || tile > axis)
      return ERROR_HDU(at, "axis %d: %lld pixels in tiles of %lld, not 1 to all pixels; " BAD,
                       i + 1, (long long)axis, (long long)tile);
    hdu->axis[i] = axis;
    im->tile[i] = tile;
    if (__builtin_mul_overflow(n_tile, (axis + tile - 1) / tile, &n_tile) ||
        __builtin_mul_overflow(n_pix, axis, &n_pix) || n_pix > INT64_MAX / 8)
      return ERROR_HDU(at, "the compressed image is impossibly large; " BAD);
  }
  if (n_pix * im->pix_bytes > image_limit)
    return ERROR_HDU(at,
                     "the compressed image unpacks to %lld MiB, more than the limit of %lld MiB; "
                     "raise gzip_limit_mib, or funpack the file",
                     (long long)(n_pix * im->pix_bytes >> 20), (long long)(image_limit >> 20));
  if (n_tile != n_row)
    return ERROR_HDU(at, "%lld compressed tiles instead of %lld; " BAD, (long long)n_row,
                     (long long)n_tile);
  return MILL_OK;
}

/* List the columns of stream descriptors in stream [n_field]; *n: number of these columns. */
static int find_streams(const mill_fits_place *at, const mill_fits_table *table, const image *im,
                        stream_column *stream, int *n)
{
  static const char codes[] = "LXBAIJEKDCM"; /* of TFORM (field_bytes); bytes: of one element */
  static const int bytes[] = {1, 1, 1, 1, 2, 4, 4, 8, 8, 8, 16};
  int n_tile = 0, n_gzip = 0, has_rice = 0;
  int64_t offset = 0;
  *n = 0;
  for (int i = 0; i < table->n_field; i++) {
    const mill_fits_field *field = &table->field[i];
    const char *p = field->form + strspn(field->form, " 0123456789");
    n_tile += field->n_tile;
    n_gzip += field->n_gzip;
    if ((*p == 'P' || *p == 'Q') && field->n_byte > 0) { /* descriptors of 32 or 64 bits */
      const int is_rice = field->n_tile > 0 && im->is_rice;
      if (is_rice && p[1] != 'B')
        return ERROR_HDU(at, "TFORM%d = '%s' for RICE streams; " BAD, i + 1, field->form);
      has_rice |= is_rice;
      const int is_gzip = !is_rice && field->n_tile + field->n_gzip > 0;
      stream[*n].kind = is_rice ? STREAM_RICE : is_gzip ? STREAM_GZIP : STREAM_OTHER;
      stream[*n].offset = offset;
      stream[*n].is_wide = *p == 'Q';
      stream[(*n)++].element_bytes = bytes[strchr(codes, p[1]) - codes];
    }
    offset += field->n_byte;
  }
  if (n_tile > 1)
    return ERROR_HDU(at, "there are two columns of compressed tiles; " BAD);
  if (n_gzip > 1)
    return ERROR_HDU(at, "there are two columns of tiles compressed by gzip; " BAD);
  if (n_tile == 0 || (im->is_rice && !has_rice))
    return ERROR_HDU(at, "no column of compressed tiles; " BAD);
  return MILL_OK;
}

/* ---- the tiles -------------------------------------------------------- */

/* Does a Rice stream of n_pix pixels end within its bytes?  CFITSIO's decoder would read on.
 * Rice, Yeh and Miller 1993, JPL 93-1. */
static int good_rice(const unsigned char *bytes, int64_t n_bytes, int64_t n_pix, const image *im)
{
  const int is_4 = im->byte_pix == 4, is_2 = im->byte_pix == 2;
  const int fs_bits = is_4 ? 5 : is_2 ? 4 : 3;  /* bits that store fs + 1 at a block's start */
  const int fs_max = is_4 ? 25 : is_2 ? 14 : 6; /* fs of a block stored unpacked */
  const int64_t end = 8 * n_bytes;
  int64_t at = 8 * im->byte_pix; /* position in bits; the first pixel is not coded */
  for (int64_t i = 0; i < n_pix; i += im->n_block) {
    const int64_t n = n_pix - i < im->n_block ? n_pix - i : im->n_block;
    int fs = 0; /* number of low bits stored of each difference of pixels */
    if (at + fs_bits > end)
      return 0;
    for (int j = 0; j < fs_bits; j++, at++)
      fs = fs << 1 | (bytes[at / 8] >> (7 - at % 8) & 1);
    fs--; /* -1: all differences are 0 */
    if (fs > fs_max)
      return 0;
    if (fs == fs_max)
      at += n * 8 * im->byte_pix;
    else if (fs >= 0)
      for (int64_t j = 0; j < n; j++) {
        while (at < end && !(bytes[at / 8] >> (7 - at % 8) & 1)) /* high bits: zeros, then a one */
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

/* Does unpacking a gzip stream end within its bytes, and within `most` unpacked bytes?  If not,
 * CFITSIO 4.2 allocates memory without end.  Damage ends it too; CFITSIO reports that itself. */
static int good_gzip(unsigned char *bytes, int64_t n_bytes, int64_t most)
{
  unsigned char out[1 << 14];
  z_stream z = {.next_in = bytes, .avail_in = (uInt)n_bytes};
  int status = Z_OK;
  int64_t n_out = 0;
  if (n_bytes > UINT_MAX || inflateInit2(&z, 15 + 16) != Z_OK) /* 16: with a gzip header */
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

/* Number of pixels of a tile; tiles at the far edges of the image are smaller. */
static int64_t tile_pixels(const mill_fits_hdu *hdu, const image *im, int64_t i_tile)
{
  int64_t n_pix = 1;
  for (int i = 0; i < hdu->n_axis; i++) {
    const int64_t tile = im->tile[i], n_tile = (hdu->axis[i] + tile - 1) / tile;
    const int64_t start = i_tile % n_tile * tile;
    n_pix *= hdu->axis[i] - start < tile ? hdu->axis[i] - start : tile;
    i_tile /= n_tile;
  }
  return n_pix;
}

/* Read a stream's length (bytes) and start in the heap from its descriptor; 0: beyond the heap. */
static int good_descriptor(const stream_column *s, const unsigned char *row, int64_t heap_bytes,
                           int64_t *n_byte, int64_t *start)
{
  const int size = s->is_wide ? 8 : 4;
  const uint64_t heap = (uint64_t)heap_bytes, element = (uint64_t)s->element_bytes;
  uint64_t value[2] = {0, 0}; /* number of elements, start */
  for (int j = 0; j < 2 * size; j++)
    value[j / size] = value[j / size] << 8 | row[s->offset + j];
  if (value[0] > heap / element || value[1] > heap || value[0] * element > heap - value[1])
    return 0;
  *n_byte = (int64_t)(value[0] * element);
  *start = (int64_t)value[1];
  return 1;
}

/* Check that every stream lies inside the heap, and that its decoding ends within its bytes. */
static int check_tiles(const mill_fits_place *at, const mill_fits_guard *guard,
                       const mill_fits_table *table, const mill_fits_hdu *tiles,
                       const mill_fits_hdu *hdu, const image *im)
{
  const int64_t row_bytes = tiles->axis[0], n_row = tiles->axis[1];
  const int64_t heap_bytes = tiles->data_bytes - table->heap_start;
  MILL_OWNED unsigned char *row = NULL, *tile = NULL;
  MILL_OWNED stream_column *stream = NULL;
  int n_stream = 0;
  int64_t tile_room = 0, all_bytes = 0;
  MILL_CHECK(MILL_ALLOC(table->n_field, &stream));
  MILL_CHECK(find_streams(at, table, im, stream, &n_stream));
  MILL_CHECK(MILL_ALLOC(row_bytes, &row));
  for (int64_t i_row = 0; i_row < n_row; i_row++) {
    const int64_t n_pix = tile_pixels(hdu, im, i_row);
    int64_t packed_bytes = 0, n_byte = 0, start = 0;
    if (mill_fits_read_at(guard->fd, row, row_bytes, tiles->data_start + i_row * row_bytes) !=
        row_bytes)
      return ERROR_HDU(at, "row %lld cannot be read; " CUT, (long long)i_row + 1);
    for (const stream_column *s = stream; s < stream + n_stream; s++) {
      if (!good_descriptor(s, row, heap_bytes, &n_byte, &start))
        return ERROR_HDU(at, "tile %lld points outside the compressed data; " BAD,
                         (long long)i_row + 1);
      packed_bytes += n_byte;
      if (s->kind == STREAM_OTHER || n_byte == 0)
        continue;
      MILL_CHECK(MILL_GROW(&tile, &tile_room, n_byte));
      if (mill_fits_read_at(guard->fd, tile, n_byte,
                            tiles->data_start + table->heap_start + start) != n_byte ||
          !(s->kind == STREAM_RICE ? good_rice(tile, n_byte, n_pix, im)
                                   : good_gzip(tile, n_byte, 8 * n_pix))) /* pixels: <= 8 bytes */
        return ERROR_HDU(at, "the compressed data of tile %lld are damaged: make the file again",
                         (long long)i_row + 1);
    }
    all_bytes += packed_bytes; /* above heap_bytes: tiles share bytes */
    if (n_pix * im->pix_bytes / MAX_PACKING > packed_bytes || all_bytes > heap_bytes)
      return ERROR_HDU(at, "tile %lld has too few bytes for its pixels; " BAD,
                       (long long)i_row + 1);
  }
  return MILL_OK;
}

int mill_fits_take_compressed(const mill_fits_place *at, const mill_fits_guard *guard,
                              const mill_fits_table *table, int64_t image_limit, mill_fits_hdu *hdu)
{
  const mill_fits_hdu tiles = *hdu; /* the table; *hdu will describe the image */
  const int64_t bitpix = table->key[MILL_KEY_ZBITPIX][0].value;
  const int64_t n_axis = table->key[MILL_KEY_ZNAXIS][0].value;
  const char *type = table->key[MILL_KEY_ZCMPTYPE][0].text;
  image im = {.is_rice = strcmp(type, "RICE_1") == 0 || strcmp(type, "RICE_ONE") == 0};
  if (!mill_fits_good_bitpix(bitpix) || n_axis < 1 || n_axis > MILL_FITS_MAX_AXIS)
    return ERROR_HDU(at, "ZBITPIX is %lld (allowed: values of BITPIX), ZNAXIS %lld (1 to 9); " BAD,
                     (long long)bitpix, (long long)n_axis);
  im.pix_bytes = (int)(llabs(bitpix) / 8);
  /* CFITSIO's other decoders do not check their input, so refuse them */
  if (!im.is_rice && strcmp(type, "GZIP_1") != 0 && strcmp(type, "GZIP_2") != 0)
    return ERROR_HDU(
        at, "tiles compressed by '%s' are not read, only RICE_1, GZIP_1, GZIP_2: funpack it", type);
  if (im.is_rice)
    MILL_CHECK(take_rice(at, table, &im));
  hdu->kind = MILL_FITS_IMAGE;
  hdu->compressed = 1;
  hdu->bitpix = (int)bitpix;
  hdu->n_axis = (int)n_axis;
  MILL_CHECK(take_axes(at, table, tiles.axis[1], image_limit, &im, hdu));
  return check_tiles(at, guard, table, &tiles, hdu, &im);
}
