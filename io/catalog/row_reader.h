/** Number columns of a table, read in blocks of rows: of a result of `starmill fit`, of another
 *  HDF5 file whose columns are datasets of one dimension, or of a FITS file. */
#ifndef MILL_ROW_READER_H
#define MILL_ROW_READER_H

#include <stdint.h>

enum { MILL_READER_MAX_COLUMN = 4, MILL_READER_UNIT = 48 };

typedef struct mill_row_reader mill_row_reader;

/** Open a table with the columns name [n_name]; path is borrowed until it is closed.
 *
 *  HDF5: a name is looked for in /fits, /catalog and /, or is a path.  FITS: in all binary tables,
 *  without regard to case.  Columns in different places must have equally many rows.
 *
 *  What says whether a row is good is found too: RVS_WARN where there is such a column, and STATUS
 *  of a result of starmill.
 *
 *  MILL_ERR_INPUT names the file: it cannot be read, it has no such column, or one that does not
 *  hold one number a row.  NULL in *out then. */
int mill_row_reader_open(const char *path, int n_name, const char *const *name,
                         mill_row_reader **out);

int64_t mill_row_reader_n_row(const mill_row_reader *reader);

/** Unit of a column as the file has it; empty: none. */
const char *mill_row_reader_unit(const mill_row_reader *reader, int i_name);

/** 1: the file says which rows are good. */
int mill_row_reader_knows_good(const mill_row_reader *reader);

/** Does the table at path have all of the columns?  *found is 0 also where one is no number. */
int mill_row_reader_has(const char *path, int n_name, const char *const *name, int *found);

/** Read rows [first, first + n).
 *
 *  value[i_name] [n]  out  nulls of integers in FITS are NaN
 *  is_good [n]        out  1 or 0; all 1 where the file does not say.  NULL: not wanted
 *
 *  MILL_ERR_INPUT. */
int mill_row_reader_read(mill_row_reader *reader, int64_t first, int n, double *const *value,
                         unsigned char *is_good);

/** NULL is allowed. */
void mill_row_reader_close(mill_row_reader *reader);

#endif
