#include "io/surveys/selection.h"

#include <math.h>
#include <string.h>

int mill_selection_keeps_target(const mill_selection *select, int64_t target_id)
{
  if (select->n_target_id == 0)
    return 1;
  size_t low = 0, high = select->n_target_id;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (select->target_id[middle] < target_id)
      low = middle + 1;
    else
      high = middle;
  }
  return low < select->n_target_id && select->target_id[low] == target_id;
}

int mill_selection_keeps_objtype(const mill_selection *select, const char *objtype)
{
  if (select->n_objtype == 0)
    return strcmp(objtype, "SKY") != 0 && strcmp(objtype, "BAD") != 0;
  for (int i = 0; i < select->n_objtype; i++)
    if (strcmp(objtype, select->objtype[i]) == 0)
      return 1;
  return 0;
}

int mill_selection_keeps_fiberstatus(const mill_selection *select, uint64_t fiberstatus)
{
  return (fiberstatus & ~select->fiberstatus_allowed) == 0;
}

int mill_selection_keeps_redrock(const mill_selection *select, double z, const char *spectype)
{
  if (!select->redrock)
    return 1;
  return strcmp(spectype, "STAR") == 0 || fabs(z) * MILL_C_KM_S < select->redrock_max_vel_km_s;
}
