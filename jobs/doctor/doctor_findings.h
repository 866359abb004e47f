/** What doctor has found: one list, printed as text or as JSON. */
#ifndef MILL_DOCTOR_FINDINGS_H
#define MILL_DOCTOR_FINDINGS_H

#include <stdint.h>
#include <stdio.h>

enum mill_finding_level { MILL_FINDING_OK, MILL_FINDING_WARNING, MILL_FINDING_FAILURE };

typedef struct mill_finding {
  char key[64];   /**< "output.write_rate": topic, name */
  char text[256]; /**< the value, unless it is a number */
  double value;
  const char *unit; /**< of a number; NULL: it is a text */
  int level;        /**< enum mill_finding_level */
  char fix[512];    /**< what is wrong and what to do; empty for MILL_FINDING_OK */
} mill_finding;

typedef struct mill_findings {
  mill_finding *item; /**< [n], owned */
  int n;
  int64_t n_room;
  int exit_status; /**< of the first failure; 0: none */
  int is_short;    /**< memory ran out: some are missing */
} mill_findings;

void mill_findings_clear(mill_findings *findings);

/** Add a text or a number. */
void mill_finding_text(mill_findings *findings, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void mill_finding_number(mill_findings *findings, const char *key, double value, const char *unit);

/** What was added last is a failure, which gives this exit status; 0: a warning.  The worst of
 *  several marks stays, of equal ones the first. */
void mill_finding_mark(mill_findings *findings, int exit_status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define mill_finding_warn(findings, ...) mill_finding_mark(findings, 0, __VA_ARGS__)
#define mill_finding_fail                mill_finding_mark

void mill_findings_print(const mill_findings *findings, FILE *out);
/** MILL_ERR_MEMORY, or MILL_ERR_OUTPUT when out does not take it all. */
int mill_findings_print_json(const mill_findings *findings, FILE *out);

#endif
