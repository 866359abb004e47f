/** The job `starmill merge`: finished results of parts of a survey become one. */
#ifndef MILL_MERGE_JOB_H
#define MILL_MERGE_JOB_H

/** argv[0] is the job's name.  Returns the exit status of the program. */
int mill_job_merge(int argc, char **argv);

#endif
