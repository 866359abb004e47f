/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/doctor/doctor_report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void mill_doctor_say(mill_doctor_report *report, const char *key, const char *format, ...)
{
  va_list args;
  const size_t n = strcspn(key, ".");
  if (strncmp(key, report->topic, n) != 0 || report->topic[n] != '\0') {
    snprintf(report->topic, sizeof report->topic, "%.*s", (int)n, key);
    printf("%s\n", report->topic);
  }
  printf("  %-22s ", key + n + 1);
  va_start(args, format);
  vprintf(format, args);
  va_end(args);
  printf("\n");
}

void mill_doctor_mark(mill_doctor_report *report, int exit_status, const char *format, ...)
{
  va_list args;
  if (report->exit_status == 0)
    report->exit_status = exit_status;
  *(exit_status != 0 ? &report->n_failure : &report->n_warning) += 1;
  printf("    %s: ", exit_status != 0 ? "failure" : "warning");
  va_start(args, format);
  vprintf(format, args);
  va_end(args);
  printf("\n");
}
