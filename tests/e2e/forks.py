# SPDX-License-Identifier: BSD-3-Clause
"""Jobs in Python by forks of this process, so that a script of tests imports NumPy, SciPy and Astropy
once and not for each of its calls (base.py).

A line of standard input is JSON [[scripts/job.py, argument...], folder, files of standard output and
error]; the answer is the exit status.
"""

import atexit
import importlib
import json
import os
import runpy
import sys
import traceback

# what jobs import when they need it
LATER = {"library": ("scipy.interpolate", "astropy.table", "h5py"), "export": ("astropy.table",),
         "status": ("look.result",)}

for line in sys.stdin:
    sys.argv, folder, *files = json.loads(line)
    script, module = sys.argv[:2]
    sys.path[0] = os.path.dirname(script)
    for name in (module, *LATER.get(module.split(".")[0], ())):
        importlib.import_module(name)
    process = os.fork()
    if process == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
else:
    sys.exit()

os.chdir(folder)
for target, file in enumerate((os.devnull, *files)):
    os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC), target)
status = 1
try:
    runpy.run_path(script, run_name="__main__")
except SystemExit as end:
    status = end.code or 0
except BaseException:
    traceback.print_exc()
atexit._run_exitfuncs()
os._exit(status)  # to clear away what was imported takes as long as to import it
