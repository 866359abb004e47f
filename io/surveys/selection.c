/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/surveys/selection.h"

#include <string.h>
#include <strings.h>

#include "src/config/text.h"

static int keeps_objtype(const mill_selection *select, const char *objtype)
{
  if (select->n_objtype == 0)
    return strcasecmp(objtype, "SKY") != 0 && strcasecmp(objtype, "BAD") != 0;
  for (int i = 0; i < select->n_objtype; i++)
    if (strcasecmp(objtype, select->objtype[i]) == 0)
      return 1;
  return 0;
}

static int is_slow(const mill_selection *select, double z)
{
  return fabs(z) * MILL_C_KM_S < select->redrock_max_vel_km_s;
}

int mill_selection_is_extragalactic(const mill_selection *select, const mill_catalog_row *row)
{
  return (strcmp(row->kind.spectype, "GALAXY") == 0 || strcmp(row->kind.spectype, "QSO") == 0) &&
         row->kind.zwarn == 0 && !is_slow(select, row->kind.z);
}

static int keeps_star(const mill_selection *select, int in_class, double z, const char *spectype)
{
  const int is_star = !select->redrock || strcmp(spectype, "STAR") == 0 || is_slow(select, z);
  if (select->n_target_class == 0)
    return is_star;
  if (!select->redrock)
    return in_class;
  return select->select_by == MILL_SELECT_BY_ALL ? in_class && is_star : in_class || is_star;
}

int mill_selection_has_scores(const mill_selection *select)
{
  return select->sn_source == MILL_SN_SCORES && isfinite(select->min_sn);
}

int mill_selection_keeps(const mill_selection *select, const mill_candidate *c)
{
  return (!c->objtype || keeps_objtype(select, c->objtype)) &&
         (!mill_selection_has_scores(select) || c->sn >= select->min_sn) &&
         keeps_star(select, c->in_class, c->row->kind.z, c->row->kind.spectype);
}

int mill_selection_check(const mill_selection *select, const char *path, int has_kind,
                         int has_objtype)
{
  const int by_class = select->n_target_class > 0 && select->select_by == MILL_SELECT_BY_ANY;
  const int lacks_kind = select->redrock && !by_class && !has_kind;
  if (lacks_kind || (select->n_objtype > 0 && !has_objtype))
    return MILL_ERROR(MILL_ERR_INPUT, "%s: its rows have no %s; leave this key out for such files",
                      path,
                      lacks_kind ? "class or redshift, by which redrock selects"
                                 : "target type, by which objtypes selects");
  return MILL_OK;
}

int mill_selection_has_exp_id(const mill_selection *select)
{
  return select->min_exp_id > 0 || select->max_exp_id > 0;
}

int mill_selection_keeps_exp_id(const mill_selection *select, int32_t exp_id)
{
  return !mill_selection_has_exp_id(select) ||
         (exp_id >= 0 && exp_id >= select->min_exp_id &&
          (select->max_exp_id == 0 || exp_id <= select->max_exp_id));
}

struct mill_class_patterns {
  int n;
  regex_t regex[MILL_MAX_TARGET_CLASS];
};

int mill_class_patterns_make(const mill_selection *select, mill_class_patterns **out)
{
  MILL_AT_END(mill_class_patterns_free_at) mill_class_patterns *patterns = NULL;
  char reason[128];
  *out = NULL;
  MILL_CHECK(MILL_ALLOC(1, &patterns));
  for (int i = 0; i < select->n_target_class; i++) {
    if (!mill_name_regex(select->target_class[i], &patterns->regex[i], reason, sizeof reason))
      return MILL_ERROR(MILL_ERR_CONFIG, "target_classes: '%s': %s", select->target_class[i],
                        reason);
    patterns->n++;
  }
  return MILL_GIVE(&patterns, out);
}

void mill_class_patterns_free(mill_class_patterns *patterns)
{
  for (int i = 0; patterns && i < patterns->n; i++)
    regfree(&patterns->regex[i]);
  mill_free(patterns);
}

int mill_class_matches(const mill_class_patterns *patterns, const char *name)
{
  int bits = 0;
  for (int i = 0; i < patterns->n; i++)
    bits |= (regexec(&patterns->regex[i], name, 0, NULL, 0) == 0) << i;
  return bits;
}
