/* SPDX-License-Identifier: BSD-3-Clause */
/** Output of doctor, printed line by line on standard output by the rank that finds it. */
#ifndef MILL_DOCTOR_REPORT_H
#define MILL_DOCTOR_REPORT_H

/** Zeroed at first. */
typedef struct mill_doctor_report {
  char topic[32];  /**< of the line before */
  int exit_status; /**< of the first failure; 0: none */
  int n_failure, n_warning;
} mill_doctor_report;

/** A line: key "ranks.count" stands below the heading of its topic, "ranks". */
void mill_doctor_say(mill_doctor_report *report, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** A remark below a line: the problem and its remedy.  exit_status 0: a warning, else a failure. */
void mill_doctor_mark(mill_doctor_report *report, int exit_status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define mill_doctor_warn(report, ...) mill_doctor_mark(report, 0, __VA_ARGS__)
#define mill_doctor_fail              mill_doctor_mark

#endif
