#define _GNU_SOURCE /* fallocate */

#include "io/fits/fits_stream.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <fitsio.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files/lock_file.h"
#include "io/fits/fits_guard.h"
#include "kernels/base/error.h"
#include "src/system/regular_file.h"

enum {
  BLOCK = 2880,
  CARD = 80,
  MAX_COLUMN = 64,
  TABLE_BYTES = 1 << 18 /* buffer for rows of tables */
};

typedef struct stream_hdu {
  char *header; /* [header_bytes], padded, owned */
  int64_t header_bytes, header_start, data_start, data_bytes;
} stream_hdu;

struct mill_fits_stream {
  char path[MILL_STREAM_MAX_PATH];      /* empty until opened */
  char temporary[MILL_STREAM_MAX_PATH]; /* empty: none to be removed */
  int fd;
  int n_hdu;
  stream_hdu hdu[MILL_STREAM_MAX_HDU];
  int64_t file_bytes;
  fitsfile *maker; /* of headers, in memory, always without data */
};

/* ---- headers ---------------------------------------------------------------------------- */

static int check_status(const char *what, int status)
{
  char text[FLEN_STATUS];
  if (status == 0)
    return MILL_OK;
  fits_get_errstatus(status, text);
  fits_clear_errmsg();
  return MILL_ERROR(MILL_ERR_OUTPUT, "the FITS header of %s cannot be made: %s", what, text);
}

static int64_t padded(int64_t bytes)
{
  return (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

/* Write the value of an axis over the card that has it. */
static int set_axis(char *header, int64_t n_card, const char *key, int64_t value)
{
  int status = 0;
  char text[32], name[16], card[FLEN_CARD];
  snprintf(name, sizeof name, "%-8s=", key);
  snprintf(text, sizeof text, "%lld", (long long)value);
  for (int64_t i = 0; i < n_card; i++) {
    char *old = header + i * CARD, comment[FLEN_COMMENT], old_value[FLEN_VALUE], copy[FLEN_CARD];
    if (strncmp(old, name, 9) != 0)
      continue;
    memcpy(copy, old, CARD);
    copy[CARD] = '\0';
    fits_parse_value(copy, old_value, comment, &status);
    MILL_CHECK(check_status(key, fits_make_key(key, text, comment, card, &status)));
    snprintf(copy, sizeof copy, "%-80s", card);
    memcpy(old, copy, CARD);
    return MILL_OK;
  }
  return MILL_ERROR(MILL_ERR_INTERNAL, "a FITS header without %s was made", key);
}

/* Take the header that the maker stands on, and put the true length of the slowest axis
 * into it: CFITSIO itself would write all the data as zeros. */
static int take_header(mill_fits_stream *stream, const char *what, const char *axis_key,
                       int64_t n_axis, int64_t data_bytes)
{
  int err = MILL_OK;
  int n_key = 0, status = 0;
  char *text = NULL;
  if (stream->n_hdu == MILL_STREAM_MAX_HDU)
    MILL_FAIL(MILL_ERR_INTERNAL, "more than %d HDUs", MILL_STREAM_MAX_HDU);
  MILL_TRY(check_status(what, fits_hdr2str(stream->maker, 0, NULL, 0, &text, &n_key, &status)));
  stream_hdu *hdu = &stream->hdu[stream->n_hdu];
  const int64_t bytes = (int64_t)strlen(text);
  hdu->header_bytes = padded(bytes);
  hdu->header_start = stream->file_bytes;
  hdu->data_start = hdu->header_start + hdu->header_bytes;
  hdu->data_bytes = data_bytes;
  MILL_TRY(MILL_ALLOC(hdu->header_bytes, &hdu->header));
  stream->n_hdu++;
  memset(hdu->header, ' ', (size_t)hdu->header_bytes);
  memcpy(hdu->header, text, (size_t)bytes);
  if (axis_key)
    MILL_TRY(set_axis(hdu->header, bytes / CARD, axis_key, n_axis));
  stream->file_bytes = hdu->data_start + padded(data_bytes);
done:
  if (text)
    fits_free_memory(text, &status);
  return err;
}

int mill_fits_stream_create(const char *name, int n_key, const mill_stream_key *key, int n_history,
                            const char *const *history, mill_fits_stream **out)
{
  int err = MILL_OK;
  int status = 0;
  mill_fits_stream *stream = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &stream));
  stream->fd = -1;
  fits_create_file(&stream->maker, "mem://", &status);
  fits_create_img(stream->maker, BYTE_IMG, 0, NULL, &status);
  for (int i = 0; i < n_key && status == 0; i++) {
    if (key[i].kind == 'S') {
      fits_write_key_str(stream->maker, key[i].name, key[i].text, key[i].comment, &status);
    } else if (key[i].kind == 'L') {
      fits_write_key_log(stream->maker, key[i].name, key[i].number != 0, key[i].comment, &status);
    } else {
      fits_write_key_lng(stream->maker, key[i].name, key[i].number, key[i].comment, &status);
    }
  }
  for (int i = 0; i < n_history && status == 0; i++)
    fits_write_history(stream->maker, history[i], &status);
  MILL_TRY(check_status(name, status));
  MILL_TRY(take_header(stream, name, NULL, 0, 0));
  *out = stream;
done:
  if (err != MILL_OK)
    mill_fits_stream_destroy(stream);
  return err;
}

int mill_fits_stream_image(mill_fits_stream *stream, const char *extname, int bitpix, int n_axis,
                           const int64_t *axis, const char *unit)
{
  int status = 0;
  char key[16];
  LONGLONG length[3] = {0};
  int64_t bytes = abs(bitpix) / 8;
  if (n_axis < 1 || n_axis > 3)
    return MILL_ERROR(MILL_ERR_RANGE, "image %s of %d axes", extname, n_axis);
  for (int i = 0; i < n_axis; i++) {
    length[i] = i + 1 < n_axis ? axis[i] : 0;
    if (axis[i] < 1 || axis[i] > INT64_MAX / 4 / bytes)
      return MILL_ERROR(MILL_ERR_RANGE, "image %s with an axis of %lld", extname,
                        (long long)axis[i]);
    bytes *= axis[i];
  }
  fits_create_imgll(stream->maker, bitpix, n_axis, length, &status);
  fits_write_key_str(stream->maker, "EXTNAME", extname, "extension name", &status);
  if (unit)
    fits_write_key_str(stream->maker, "BUNIT", unit, NULL, &status);
  MILL_CHECK(check_status(extname, status));
  snprintf(key, sizeof key, "NAXIS%d", n_axis);
  return take_header(stream, extname, key, axis[n_axis - 1], bytes);
}

int mill_fits_stream_table(mill_fits_stream *stream, const char *extname, int64_t n_row,
                           int n_column, const mill_stream_column *column)
{
  int status = 0;
  long row_bytes = 0;
  char *name[MAX_COLUMN], *format[MAX_COLUMN], *unit[MAX_COLUMN];
  static char none[] = "";
  if (n_column < 1 || n_column > MAX_COLUMN || n_row < 1)
    return MILL_ERROR(MILL_ERR_RANGE, "table %s of %d columns and %lld rows", extname, n_column,
                      (long long)n_row);
  for (int i = 0; i < n_column; i++) {
    /* CFITSIO only reads them */
    name[i] = (char *)(uintptr_t)column[i].name;
    format[i] = (char *)(uintptr_t)column[i].format;
    unit[i] = column[i].unit ? (char *)(uintptr_t)column[i].unit : none;
  }
  fits_create_tbl(stream->maker, BINARY_TBL, 0, n_column, name, format, unit, extname, &status);
  fits_read_key_lng(stream->maker, "NAXIS1", &row_bytes, NULL, &status);
  MILL_CHECK(check_status(extname, status));
  if (n_row > INT64_MAX / 4 / row_bytes)
    return MILL_ERROR(MILL_ERR_RANGE, "table %s of %lld rows", extname, (long long)n_row);
  return take_header(stream, extname, "NAXIS2", n_row, n_row * row_bytes);
}

int64_t mill_fits_stream_bytes(const mill_fits_stream *stream)
{
  return stream->file_bytes;
}

/* ---- comparing -------------------------------------------------------------------------- */

int mill_fits_stream_compare(const mill_fits_stream *stream, const char *path, int *state)
{
  int err = MILL_OK;
  struct stat status;
  char *found = NULL;
  *state = MILL_FILE_ABSENT;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT)
    goto done;
  if (fd < 0 || fstat(fd, &status) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT,
              "%s: is there but cannot be read: %s: remove it or give another name", path,
              strerror(errno));
  *state = MILL_FILE_OTHER;
  if (!S_ISREG(status.st_mode) || status.st_size != stream->file_bytes)
    goto done;
  for (int i = 0; i < stream->n_hdu; i++) {
    const stream_hdu *hdu = &stream->hdu[i];
    mill_free(found);
    found = NULL;
    MILL_TRY(MILL_ALLOC(hdu->header_bytes, &found));
    const int64_t n = mill_fits_read_at(fd, found, hdu->header_bytes, hdu->header_start);
    if (n < 0)
      MILL_FAIL(MILL_ERR_OUTPUT, "%s: is there but cannot be read: %s: remove it", path,
                strerror(errno));
    if (n != hdu->header_bytes || memcmp(found, hdu->header, (size_t)n) != 0)
      goto done;
  }
  *state = MILL_FILE_SAME;
done:
  if (fd >= 0)
    close(fd);
  mill_free(found);
  return err;
}

/* ---- writing ---------------------------------------------------------------------------- */

static int write_failed(const mill_fits_stream *stream, int reason)
{
  return MILL_ERROR(
      MILL_ERR_OUTPUT,
      "%s cannot be written: %s: it needs %.1f MB: make room or choose another output",
      stream->path, strerror(reason), (double)stream->file_bytes / 1e6);
}

/* All of iov, however the system cuts it. */
static int put_at(const mill_fits_stream *stream, int64_t offset, struct iovec *iov, int n_iov)
{
  int err = MILL_OK;
  while (n_iov > 0) {
    ssize_t n = pwritev(stream->fd, iov, n_iov < IOV_MAX ? n_iov : IOV_MAX, offset);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0 || (n == 0 && iov->iov_len > 0)) {
      err = write_failed(stream, n < 0 ? errno : ENOSPC);
      goto done;
    }
    offset += n;
    while (n_iov > 0 && (size_t)n >= iov->iov_len) {
      n -= (ssize_t)iov->iov_len;
      iov++;
      n_iov--;
    }
    if (n > 0) {
      iov->iov_base = (char *)iov->iov_base + n;
      iov->iov_len -= (size_t)n;
    }
  }
done:
  return err;
}

/* Claim the space now, so that a full disk is known at once; where the file system cannot,
 * a file of holes does, and the writes tell. */
static int allocate(const mill_fits_stream *stream)
{
  int err = MILL_OK;
  int code;
  do
    code = fallocate(stream->fd, 0, 0, stream->file_bytes);
  while (code != 0 && errno == EINTR);
  if (code != 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
    code = ftruncate(stream->fd, stream->file_bytes);
  if (code != 0)
    err = write_failed(stream, errno);
  return err;
}

/* Remove what a failure leaves. */
static void drop_temporary(mill_fits_stream *stream)
{
  if (stream->fd >= 0)
    close(stream->fd);
  stream->fd = -1;
  if (stream->temporary[0])
    unlink(stream->temporary);
  stream->temporary[0] = '\0';
}

static int check_target(const char *path, int overwrite)
{
  struct stat status;
  if (stat(path, &status) != 0)
    return MILL_OK;
  if (!S_ISREG(status.st_mode))
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: exists and is not a regular file: give another name",
                      path);
  return mill_refuse_existing(path, overwrite);
}

int mill_fits_stream_open(mill_fits_stream *stream, const char *path, int overwrite)
{
  int err = MILL_OK;
  char job[64];
  mill_lock_job(job, sizeof job);
  if (snprintf(stream->path, sizeof stream->path, "%s", path) + 80 > (int)sizeof stream->path)
    MILL_FAIL(MILL_ERR_OUTPUT, "the output's path is too long: %.80s...", path);
  MILL_TRY(check_target(path, overwrite));
  snprintf(stream->temporary, sizeof stream->temporary, "%.4000s.tmp-%s", path, job);
  stream->fd = open(stream->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (stream->fd < 0) {
    const int reason = errno;
    stream->temporary[0] = '\0';
    MILL_FAIL(
        MILL_ERR_OUTPUT,
        "%s cannot be created: %s: create the folder or make it writable, or choose another output",
        path, strerror(reason));
  }
  MILL_TRY(allocate(stream));
  for (int i = 0; i < stream->n_hdu; i++) {
    const stream_hdu *hdu = &stream->hdu[i];
    struct iovec iov = {hdu->header, (size_t)hdu->header_bytes};
    MILL_TRY(put_at(stream, hdu->header_start, &iov, 1));
  }
done:
  if (err != MILL_OK)
    drop_temporary(stream);
  return err;
}

int mill_fits_stream_put(const mill_fits_stream *stream, int i_hdu, int64_t offset,
                         struct iovec *iov, int n_iov)
{
  int64_t bytes = 0;
  for (int i = 0; i < n_iov; i++)
    bytes += (int64_t)iov[i].iov_len;
  if (i_hdu < 0 || i_hdu >= stream->n_hdu || offset < 0 ||
      bytes > stream->hdu[i_hdu].data_bytes - offset)
    return MILL_ERROR(MILL_ERR_RANGE, "%s: %lld bytes at %lld of HDU %d lie outside of it",
                      stream->path, (long long)bytes, (long long)offset, i_hdu);
  return put_at(stream, stream->hdu[i_hdu].data_start + offset, iov, n_iov);
}

/* Code and bytes of a column's format. */
static char column_code(const char *format, int64_t *n_byte)
{
  const char code = format[strlen(format) - 1];
  *n_byte = code == 'A' ? strtol(format, NULL, 10) : code == 'K' || code == 'D' ? 8 : 4;
  return code;
}

int mill_fits_stream_rows(const mill_fits_stream *stream, int i_hdu, int n_column,
                          const mill_stream_column *column, int64_t first, int64_t n,
                          const void *row, size_t row_bytes)
{
  int err = MILL_OK;
  char *buffer = NULL, *to;
  int64_t n_byte, width = 0;
  for (int k = 0; k < n_column; k++) {
    column_code(column[k].format, &n_byte);
    width += n_byte;
  }
  const int64_t n_most = width < TABLE_BYTES ? TABLE_BYTES / width : 1;
  MILL_TRY(MILL_ALLOC(n_most * width, &buffer));
  for (int64_t i = 0, end; i < n; i = end) {
    end = n - i < n_most ? n : i + n_most;
    to = buffer;
    for (int64_t j = i; j < end; j++)
      for (int k = 0; k < n_column; k++, to += n_byte) {
        const char *from = (const char *)row + (size_t)j * row_bytes + column[k].offset;
        if (column_code(column[k].format, &n_byte) == 'A') {
          memset(to, ' ', (size_t)n_byte);
          memcpy(to, from, strnlen(from, (size_t)n_byte));
        } else if (n_byte == 8) {
          mill_fits_swap64(from, 1, to);
        } else {
          mill_fits_swap32(from, 1, to);
        }
      }
    struct iovec iov = {buffer, (size_t)(to - buffer)};
    MILL_TRY(mill_fits_stream_put(stream, i_hdu, (first + i) * width, &iov, 1));
  }
done:
  mill_free(buffer);
  return err;
}

int mill_fits_stream_commit(mill_fits_stream *stream)
{
  int err = MILL_OK;
  /* some file systems report a full disk only here */
  const int code = close(stream->fd);
  stream->fd = -1;
  if (code != 0 && errno != EINTR) {
    err = write_failed(stream, errno);
    goto done;
  }
  if (rename(stream->temporary, stream->path) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot be renamed to %s: %s", stream->temporary, stream->path,
              strerror(errno));
  stream->temporary[0] = '\0';
done:
  if (err != MILL_OK)
    drop_temporary(stream);
  return err;
}

void mill_fits_stream_destroy(mill_fits_stream *stream)
{
  int status = 0;
  if (!stream)
    return;
  drop_temporary(stream);
  if (stream->maker)
    fits_delete_file(stream->maker, &status);
  fits_clear_errmsg();
  for (int i = 0; i < stream->n_hdu; i++)
    mill_free(stream->hdu[i].header);
  mill_free(stream);
}

/* ---- byte order ------------------------------------------------------------------------- */

#define SWAP(bits)                                                                                 \
  void mill_fits_swap##bits(const void *in, int64_t n, void *out)                                  \
  {                                                                                                \
    for (int64_t i = 0; i < n; i++) {                                                              \
      uint##bits##_t word;                                                                         \
      memcpy(&word, (const char *)in + bits / 8 * i, sizeof word);                                 \
      word = htobe##bits(word);                                                                    \
      memcpy((char *)out + bits / 8 * i, &word, sizeof word);                                      \
    }                                                                                              \
  }
SWAP(32)
SWAP(64)
