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

/** The one added last is a warning, or a failure which gives this exit status. */
void mill_finding_warn(mill_findings *findings, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void mill_finding_fail(mill_findings *findings, int exit_status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void mill_findings_print(const mill_findings *findings, FILE *out);
/** MILL_ERR_MEMORY, or MILL_ERR_OUTPUT when out does not take it all. */
int mill_findings_print_json(const mill_findings *findings, FILE *out);

#endif
