/** An HDF5 file read by another process first.
 *
 *  HDF5 1.10 does not survive every damage of a file's structures: it reads through bad pointers
 *  and ends the process.  So the files of a run that others wrote or that may have suffered since
 *  (its library, a table to start from, an existing output) are walked once by a child process,
 *  under limits on time and memory: all groups and attributes, all data in chunks, both ends of
 *  data in one piece, of which HDF5 only copies what lies between.  Where the child dies, the run
 *  ends with a message instead.
 *
 *  The child is this program again, called as `PROGRAM probe KIND FILE`: nothing may follow a
 *  fork() in a process with MPI's and OpenMP's threads but exec().  It does not start MPI.
 */
#ifndef MILL_HDF5_PROBE_H
#define MILL_HDF5_PROBE_H

enum mill_probe_kind {
  MILL_PROBE_LIBRARY,   /**< a failure is MILL_ERR_LIBRARY */
  MILL_PROBE_EMULATOR,  /**< of which a library is made; MILL_ERR_LIBRARY */
  MILL_PROBE_TABLE,     /**< to start from; MILL_ERR_CONFIG */
  MILL_PROBE_GRID,      /**< a grid file; MILL_ERR_INPUT */
  MILL_PROBE_PARTICLES, /**< potential or samples of particles; MILL_ERR_CONFIG */
  MILL_PROBE_CATALOG,   /**< of which a map is made; MILL_ERR_INPUT */
  MILL_PROBE_RESULT     /**< an existing output; MILL_ERR_OUTPUT */
};

/** The first thing in main(): a program called as a child reads its file and never returns.
 *  Any other may call mill_h5_probe from now on. */
void mill_h5_probe_main(int argc, char **argv);

/** Have the file walked by a child.
 *
 *  MILL_OK: its reader may open it here and finds what else is wrong with it; also where there is
 *  no such file, or no HDF5 file, and where there can be no child (a warning in the log says why).
 *  Else, with the kind's code: walking it killed the child, or it is a result that reaches into
 *  other files (external and virtual storage, links), and what to do.
 *  Not collective: one rank asks, before any rank opens the file.
 *  Does nothing in a program that has not called mill_h5_probe_main. */
int mill_h5_probe(enum mill_probe_kind kind, const char *path);

#endif
