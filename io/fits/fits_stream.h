/** A new FITS file of known shape, its data put by position.
 *
 *  The HDUs are described first and CFITSIO makes their headers; then the file is
 *  allocated under a temporary name and data goes straight to its place, in any
 *  order and from several threads (CFITSIO's own path copies every block twice and
 *  fills a file with zeros first: docs/science/simulator.md has the figures).  The bytes
 *  depend on the content alone: no dates, no hosts.
 *
 *  Failures are MILL_ERR_OUTPUT and name the file and what to do; MILL_ERR_MEMORY.
 */
#ifndef MILL_FITS_STREAM_H
#define MILL_FITS_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum { MILL_STREAM_MAX_HDU = 64, MILL_STREAM_MAX_PATH = 4096 };

/** A card of the primary header: a text, or a number (kind 'I') or truth value ('L'). */
typedef struct mill_stream_key {
  const char *name;
  char kind; /**< 'S', 'I' or 'L' */
  const char *text;
  int64_t number;
  const char *comment;
} mill_stream_key;

/** A column: name, FITS format, unit (NULL: none), and where its value stands in a row of the
 *  caller's: an int64_t (K), int32_t (J), float (E), double (D) or text of at most 3 bytes (3A). */
typedef struct mill_stream_column {
  const char *name, *format, *unit;
  size_t offset;
} mill_stream_column;

typedef struct mill_fits_stream mill_fits_stream;

/** Begin a description with the primary HDU: its keys, then HISTORY cards.  name says
 *  in messages which file it is. */
int mill_fits_stream_create(const char *name, int n_key, const mill_stream_key *key, int n_history,
                            const char *const *history, mill_fits_stream **out);

/** Add an image; axis [n_axis] fastest first, bitpix as in FITS, unit NULL: none.
 *  HDUs are numbered from 0, the primary one, in the order in which they are added. */
int mill_fits_stream_image(mill_fits_stream *stream, const char *extname, int bitpix, int n_axis,
                           const int64_t *axis, const char *unit);

/** Add a binary table. */
int mill_fits_stream_table(mill_fits_stream *stream, const char *extname, int64_t n_row,
                           int n_column, const mill_stream_column *column);

/** Bytes of the whole file. */
int64_t mill_fits_stream_bytes(const mill_fits_stream *stream);

enum mill_file_state {
  MILL_FILE_ABSENT,
  MILL_FILE_SAME, /**< complete, with the same headers */
  MILL_FILE_OTHER /**< there, but not the one described */
};

/** Compare the size and all headers of the file at path with the description. */
int mill_fits_stream_compare(const mill_fits_stream *stream, const char *path, int *state);

/** Make the file under a temporary name in the folder of path: headers, zeros elsewhere. An
 *  existing file is refused unless overwrite. */
int mill_fits_stream_open(mill_fits_stream *stream, const char *path, int overwrite);

/** Put big-endian bytes at an offset within the data of an HDU; iov is used up.
 *  Thread-safe for different places. */
int mill_fits_stream_put(const mill_fits_stream *stream, int i_hdu, int64_t offset,
                         struct iovec *iov, int n_iov);

/** Put rows first .. first + n - 1 of a table, which stand row_bytes apart from row on; texts are
 *  padded with blanks.  Names and units of the columns are not looked at. */
int mill_fits_stream_rows(const mill_fits_stream *stream, int i_hdu, int n_column,
                          const mill_stream_column *column, int64_t first, int64_t n,
                          const void *row, size_t row_bytes);

/** Close and rename.  Not flushed to the disk itself: a machine that loses its power may
 *  lose the file. */
int mill_fits_stream_commit(mill_fits_stream *stream);

/** Free; removes the temporary file of one not committed.  NULL is allowed. */
void mill_fits_stream_destroy(mill_fits_stream *stream);

/** Copy n values in FITS byte order. */
void mill_fits_swap32(const void *in, int64_t n, void *out);
void mill_fits_swap64(const void *in, int64_t n, void *out);

#endif
