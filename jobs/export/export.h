/** `starmill export`: a result in the forms that other programs read. */
#ifndef MILL_EXPORT_JOB_H
#define MILL_EXPORT_JOB_H

int mill_job_export(int argc, char **argv);

#endif
