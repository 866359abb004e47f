# SPDX-License-Identifier: BSD-3-Clause
"""Templates, likelihoods and fits of stellar spectra, by libstarmill.

Results equal those of ``starmill fit`` bit for bit.  A `Library` holds templates and the settings
of a fit, a `Spectrum` the pixels of one arm in one exposure, a `Star` the spectra of one star::

    library = Library("fgk.h5", max_vel=600)
    star = library.star([Spectrum(wave, flux, ivar)])
    table = fit([star])
    print(table["TEFF"], table["TEFF_ERR"])
    loglike(star, table.theta(0))

Parameters are ordered as in `Library.parameters`: velocity and v sin i in km/s, then the library's
labels.  Wavelengths are in Angstrom, in vacuum unless ``air`` is set.  Calls release the
interpreter's lock, but wait for each other on one library: open one library per thread.
"""

TYPE_CHECKING = False  # type checkers take it as True

__all__ = ["Library", "Model", "Parameter", "Piece", "Result", "SpectraFile", "Spectrum",
           "StarmillError", "Star", "Table", "fit", "fix_model_error", "guess", "loglike",
           "minus2loglike", "model", "open_result", "template", "version"]

if TYPE_CHECKING:
    from .library import (Library, Model, Parameter, Piece, SpectraFile, Spectrum, StarmillError,
                          Star, Table, fit, fix_model_error, guess, loglike, minus2loglike, model,
                          open_result, template, version)
    from .result import Result


def __getattr__(name: str):
    """Import names on first use, so that jobs start fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    if name == "Result":  # needs no libstarmill
        from .result import Result
        return Result
    from . import library
    return getattr(library, name)
