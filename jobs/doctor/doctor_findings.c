#include "jobs/doctor/doctor_findings.h"

#include <stdarg.h>
#include <string.h>

#include "kernels/base/error.h"
#include "src/system/status_json.h"

static const char *const level_name[] = {
    [MILL_FINDING_OK] = "ok",
    [MILL_FINDING_WARNING] = "warning",
    [MILL_FINDING_FAILURE] = "failure",
};

void mill_findings_clear(mill_findings *findings)
{
  mill_free(findings->item);
  memset(findings, 0, sizeof *findings);
}

/* The next one; NULL when memory is short. */
static mill_finding *add(mill_findings *findings, const char *key)
{
  if (MILL_GROW(&findings->item, &findings->n_room, findings->n + 1) != MILL_OK) {
    findings->is_short = 1;
    return NULL;
  }
  mill_finding *f = &findings->item[findings->n++];
  memset(f, 0, sizeof *f);
  snprintf(f->key, sizeof f->key, "%s", key);
  return f;
}

void mill_finding_text(mill_findings *findings, const char *key, const char *format, ...)
{
  mill_finding *f = add(findings, key);
  va_list args;
  if (!f)
    return;
  va_start(args, format);
  vsnprintf(f->text, sizeof f->text, format, args);
  va_end(args);
}

void mill_finding_number(mill_findings *findings, const char *key, double value, const char *unit)
{
  mill_finding *f = add(findings, key);
  if (!f)
    return;
  f->value = value;
  f->unit = unit;
}

void mill_finding_mark(mill_findings *findings, int exit_status, const char *format, ...)
{
  mill_finding *f = findings->n > 0 ? &findings->item[findings->n - 1] : NULL;
  const int level = exit_status != 0 ? MILL_FINDING_FAILURE : MILL_FINDING_WARNING;
  va_list args;
  if (findings->exit_status == 0)
    findings->exit_status = exit_status;
  if (!f || f->level >= level)
    return;
  f->level = level;
  va_start(args, format);
  vsnprintf(f->fix, sizeof f->fix, format, args);
  va_end(args);
}

static int count(const mill_findings *findings, int level)
{
  int n = 0;
  for (int i = 0; i < findings->n; i++)
    n += findings->item[i].level == level;
  return n;
}

void mill_findings_print(const mill_findings *findings, FILE *out)
{
  char topic[64] = "";
  for (int i = 0; i < findings->n; i++) {
    const mill_finding *f = &findings->item[i];
    const size_t n = strcspn(f->key, ".");
    if (strncmp(f->key, topic, n) != 0 || topic[n] != '\0') {
      snprintf(topic, sizeof topic, "%.*s", (int)n, f->key);
      fprintf(out, "%s\n", topic);
    }
    fprintf(out, "  %-22s ", f->key[n] ? f->key + n + 1 : f->key);
    if (f->unit)
      fprintf(out, "%.4g%s%s\n", f->value, f->unit[0] ? " " : "", f->unit);
    else
      fprintf(out, "%s\n", f->text);
    if (f->level != MILL_FINDING_OK)
      fprintf(out, "    %s: %s\n", level_name[f->level], f->fix);
  }
  fprintf(out, "%s: %d %s, %d %s\n", findings->exit_status == 0 ? "ready" : "not ready",
          count(findings, MILL_FINDING_FAILURE),
          count(findings, MILL_FINDING_FAILURE) == 1 ? "failure" : "failures",
          count(findings, MILL_FINDING_WARNING),
          count(findings, MILL_FINDING_WARNING) == 1 ? "warning" : "warnings");
}

int mill_findings_print_json(const mill_findings *findings, FILE *out)
{
  mill_json json = {.out = out};
  mill_json_open(&json, NULL, '{');
  mill_json_text(&json, "format", "starmill doctor");
  mill_json_bool(&json, "ready", findings->exit_status == 0);
  mill_json_integer(&json, "exit_status", findings->exit_status);
  mill_json_integer(&json, "failures", count(findings, MILL_FINDING_FAILURE));
  mill_json_integer(&json, "warnings", count(findings, MILL_FINDING_WARNING));
  mill_json_open(&json, "findings", '[');
  for (int i = 0; i < findings->n; i++) {
    const mill_finding *f = &findings->item[i];
    mill_json_open(&json, NULL, '{');
    mill_json_text(&json, "key", f->key);
    if (f->unit)
      mill_json_real(&json, "value", f->value);
    else
      mill_json_text(&json, "value", f->text);
    mill_json_text(&json, "unit", f->unit);
    mill_json_text(&json, "level", level_name[f->level]);
    mill_json_text(&json, "fix", f->fix[0] ? f->fix : NULL);
    mill_json_close(&json);
  }
  mill_json_close(&json);
  return mill_json_close(&json);
}
