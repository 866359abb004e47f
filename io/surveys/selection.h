/** Which rows are kept: one question per property, no files. */
#ifndef MILL_SELECTION_H
#define MILL_SELECTION_H

#include "src/config/config.h"

/** Is the target among the wanted ones?  No list: every target is. */
int mill_selection_keeps_target(const mill_selection *select, int64_t target_id);

/** objtype without trailing blanks.  No list: all but SKY and BAD. */
int mill_selection_keeps_objtype(const mill_selection *select, const char *objtype);

/** Are only allowed bits set? */
int mill_selection_keeps_fiberstatus(const mill_selection *select, uint64_t fiberstatus);

/** By redrock: SPECTYPE STAR or |z| c below the limit; NaN and a limit of NaN
 *  keep nothing.  Always true when select->redrock is 0. */
int mill_selection_keeps_redrock(const mill_selection *select, double z, const char *spectype);

#endif
