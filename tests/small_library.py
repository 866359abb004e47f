# SPDX-License-Identifier: BSD-3-Clause
"""small_library.py SHIPPED.h5 SMALL.h5: a library for tests, quick to read and to fit with.

It is the shipped library, cut into DESI's arms, with every second pixel, a sixth of the guess's
templates and no model error.  Wavelengths are stretched by 2 %, to cover DESI's pixels at all
velocities.  Lines move too, but the tests' stars are simulated from this library."""

import dataclasses
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import numpy as np
from starmill.cli.basics import Failure
from starmill.mocks import forward, instrument
from starmill.templates import library_file

THIN, THIN_GUESS = 2, 6
FIRST_AA, LAST_AA = 3560.0, 9900.0


def with_waves(arm, ln_wave0, ln_step, n_pix):
    return dataclasses.replace(arm, ln_wave0=ln_wave0, ln_step=ln_step,
                               wave_aa=np.exp(ln_wave0 + np.arange(n_pix) * ln_step))


def thin(arm):
    emulator = dataclasses.replace(
        arm.emulator, weight=[*arm.emulator.weight[:-1], arm.emulator.weight[-1][::THIN]],
        bias=[*arm.emulator.bias[:-1], arm.emulator.bias[-1][::THIN]])
    arm = with_waves(arm, arm.ln_wave0, arm.ln_step * THIN, len(emulator.bias[-1]))
    return dataclasses.replace(arm, emulator=emulator, error=None)


def main(shipped, small):
    library = library_file.read(shipped)
    whole = library.arm[0]
    ln_step = np.log(LAST_AA / FIRST_AA) / (whole.n_pix - 1)
    library.arm = [with_waves(whole, np.log(FIRST_AA), ln_step, whole.n_pix)]
    library = forward.cut_arms(library, {arm.name: arm.wave_aa[[0, -1]]
                                         for arm in instrument.arms()})
    library = dataclasses.replace(
        library, arm=[thin(arm) for arm in library.arm], name="small library of the tests",
        guess_label=library.guess_label[::THIN_GUESS][:len(library.guess_label) // THIN_GUESS])
    library_file.write(small, library, overwrite=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Failure as failure:
        sys.exit(f"small_library: {failure}")
