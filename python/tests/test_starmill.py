# SPDX-License-Identifier: BSD-3-Clause
"""The module against results of `starmill fit` and against NumPy.

It needs a library, a file of DESI's layout and the result of a fit of it:
STARMILL_TEST_LIBRARY, STARMILL_TEST_SURVEY and STARMILL_TEST_RESULT
(tests/e2e/test_install.py makes them).
"""

import os
import pickle
import threading
from dataclasses import replace

import numpy as np
import pytest

import starmill

PATHS = [os.environ.get(f"STARMILL_TEST_{name}") for name in ("LIBRARY", "SURVEY", "RESULT")]
if not all(PATHS):
    pytest.skip("no library, survey and result are given", allow_module_level=True)
LIBRARY, SURVEY, RESULT = PATHS


@pytest.fixture(scope="module")
def library():
    return starmill.Library(LIBRARY, format="desi")


@pytest.fixture(scope="module")
def stars(library):
    return list(library.open(SURVEY))


@pytest.fixture(scope="module")
def result():
    return starmill.open_result(RESULT)


@pytest.fixture(scope="module")
def made(library):
    """Return the noisy spectrum of a made star in one arm (sigma 1.2 A), and the star's theta."""
    name, (low, high) = list(library.arms.items())[0]
    wave = np.arange(low + 5, min(high, low + 600), 1.0)
    theta = library.theta(vrad=30, vsini=20, teff=5500, logg=3.5, feh=-1, alpha=0.2)
    flux = starmill.template(library, theta, wave, name=name, sigma=1.2)
    flux = 100 * flux / np.median(flux) * (1 + 1e-4 * (wave - wave.mean()))
    noise = np.random.default_rng(3).normal(size=wave.size)
    return starmill.Spectrum(wave, flux + noise, error=np.ones(wave.size), name=name,
                             sigma=1.2), theta


def test_a_library_says_what_it_is(library, result):
    names = [parameter.name for parameter in library.parameters]
    assert names[:2] == ["vrad", "vsini"] and library.n_label == len(names) - 2
    assert all(parameter.min < parameter.max for parameter in library.parameters)
    assert list(library.arms) == ["b", "r", "z"]
    assert len(library.hash) == 64 and library.backend.startswith("cpu")
    assert "(" in starmill.version()


def test_keys_may_be_words_and_numbers_of_numpy(made):
    spectrum, theta = made
    values = []
    for keys in ({"min_vel": -500, "npoly": 9, "wave_mask": [[4000, 4100]]},
                 {"min_vel": np.float32(-500), "npoly": np.int64(9), "minsn": "none",
                  "wave_mask": np.array([[4000, 4100]]), "lsf_width_error": "auto"},
                 {"min_vel": -500, "npoly": 9, "wave_mask": "auto"}, {"min_vel": -500, "npoly": 9}):
        library = starmill.Library(LIBRARY, format="desi", **keys)
        assert library.parameters[0].min == -500
        values.append(starmill.loglike(library.star(spectrum), theta))
    assert values[0] == values[1] != values[2] == values[3]
    with pytest.raises(starmill.StarmillError, match="npoly: expected a whole number"):
        starmill.Library(LIBRARY, npoly={3})


def test_fits_are_those_of_the_program(library, stars, result):
    table = starmill.fit(stars)
    for same in library.open(SURVEY), iter(stars):
        assert starmill.fit(same)["CRC"].tolist() == table["CRC"].tolist()
    assert sorted(table.names) == sorted(result.names)
    assert len(table) == len(result) == len(stars)
    for name in table.names:
        assert table[name].dtype == result[name].dtype
        assert table[name].tobytes() == result[name].tobytes(), name
    assert table.units == result.units and table.units["TEFF"] == "K"
    assert "TEFF" in table and "TEF" not in table and list(dict(table)) == table.names
    assert f"{len(stars)} rows" in repr(table)


def test_likelihoods_and_models_are_those_of_the_result(library, stars, result):
    theta = result.theta(-len(result), library)
    np.testing.assert_array_equal(theta, result.theta(0, library))
    assert starmill.loglike(library.open(SURVEY)[-1], theta) == starmill.loglike(stars[-1], theta)
    value = starmill.minus2loglike(stars[0], theta, penalty=True)
    assert value == pytest.approx(result["M2LL"][0], rel=1e-9)
    model = starmill.model(stars[0], theta)
    assert model.m2ll + model.penalty == value
    assert sum(model.chisq.values()) == pytest.approx(result["CHISQ_TOT"][0], rel=1e-12)
    assert sum(model.n_pix.values()) == result["NPIX_TOT"][0]


def test_a_spectrum_gives_back_its_parameters(library, made):
    spectrum, theta = made
    table = starmill.fit([library.star(spectrum)])
    assert table["STATUS"][0] == 1
    covariance = table.covariance(0)
    assert covariance.shape == (theta.size, theta.size)
    np.testing.assert_array_equal(covariance, covariance.T)
    assert np.sqrt(covariance[0, 0]) == pytest.approx(table["VRAD_ERR"][0], rel=0.2)
    # five standard deviations
    assert abs(table["VRAD"][0] - theta[0]) < 5 * table["VRAD_ERR"][0]
    assert abs(table["TEFF"][0] - theta[2]) < 5 * table["TEFF_ERR"][0]


def test_a_model_is_its_template_times_its_continuum(library, made):
    spectrum, theta = made
    model = starmill.model(library.star(spectrum), theta)
    (piece,) = model.pieces
    np.testing.assert_allclose(piece.template * piece.continuum, piece.flux, rtol=3e-6)
    np.testing.assert_array_equal(model.spectrum(0), piece.flux)
    alone = starmill.template(library, theta, spectrum.wave, name=spectrum.name, sigma=1.2)
    np.testing.assert_array_equal(alone, piece.template)


def test_likelihoods_one_by_one_and_together(library, made):
    spectrum, theta = made
    star = library.star([spectrum])
    points = theta + np.random.default_rng(1).normal(size=(50, theta.size)) * [
        2, 3, 50, 0.1, 0.1, 0.05]
    points[7, 0] = 5000
    points[9, 3] = np.nan
    together = starmill.loglike(star, points)
    assert together.shape == (50,)
    assert np.isneginf(together[[7, 9]]).all() and np.isfinite(np.delete(together, [7, 9])).all()
    assert [starmill.loglike(star, point) for point in points] == list(together)
    value, gradient, curvature = starmill.minus2loglike(star, theta, derivatives=True)
    assert gradient.shape == theta.shape and (curvature == curvature.T).all()
    assert value == pytest.approx(starmill.minus2loglike(star, theta), abs=1e-3)


def test_fixed_parameters_priors_and_starts(library, made):
    spectrum, theta = made
    star = library.star(spectrum)
    fixed = dict(zip([parameter.name for parameter in library.parameters][1:], theta[1:]))
    velocity = starmill.fit([star], fixed=fixed)
    assert velocity["TEFF"][0] == theta[2] and velocity["VSINI"][0] == theta[1]
    assert velocity.covariance(0)[0, 0] > 0 and velocity.covariance(0)[2, 2] == 0
    assert abs(velocity["VRAD"][0] - theta[0]) < 5 * velocity["VRAD_ERR"][0]
    tight = starmill.fit([star], priors={"teff": (5000, 1)})
    assert abs(tight["TEFF"][0] - 5000) < 50
    free = starmill.fit([star])
    assert free["TEFF"][0] != tight["TEFF"][0] != theta[2]
    start = np.array([[theta, theta + [200, 0, 0, 0, 0, 0]]])
    singles = [starmill.fit([star], start=start[:, [k]])["M2LL"][0] for k in range(2)]
    assert starmill.fit([star], start=start)["M2LL"][0] == min(singles)
    with pytest.raises(KeyError, match="no parameter mass"):
        starmill.fit([star], fixed={"mass": 1})
    for wrong in ({"fixed": {"teff": np.nan}}, {"priors": {"teff": (5000, 0)}}):
        with pytest.raises(ValueError, match="teff: give finite fixed values"):
            starmill.fit([star], **wrong)
    # a fit's fixed values replace the library's in this fit alone; the library's priors stay
    library.constrain(fixed={"vsini": 11.0})
    starmill.fit([star], fixed=fixed)
    assert starmill.fit([star])["VSINI"][0] == 11
    both = starmill.fit([star], priors={"teff": (5000, 1)})
    assert both["VSINI"][0] == 11 and abs(both["TEFF"][0] - 5000) < 50
    library.constrain({}, {"teff": (5000, 1)})
    both = starmill.fit([star], fixed={"vsini": 11.0})
    assert both["VSINI"][0] == 11 and abs(both["TEFF"][0] - 5000) < 50
    library.constrain(priors={})
    assert starmill.fit([star])["TEFF"][0] == free["TEFF"][0]


def test_priors_of_a_fit_are_not_those_of_another_thread(library, made, monkeypatch):
    spectrum, theta = made
    star, other = library.star(spectrum), library.star(spectrum)
    seen, done, call = set(), threading.Event(), starmill.library._call

    def late(function, *given):  # time for the other thread
        done.wait(0.2 if function is starmill.library._lib.starmill_fit else 0)
        call(function, *given)

    def look():
        while not done.is_set():
            seen.add(starmill.minus2loglike(star, theta, penalty=True))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    monkeypatch.setattr(starmill.library, "_call", late)
    starmill.fit([other], priors={"teff": (4800, 20)})
    done.set()
    thread.join()
    assert seen == {starmill.minus2loglike(star, theta, penalty=True)}


def test_a_systematic_error_lowers_the_weight(library, made):
    spectrum, theta = made
    plain = starmill.model(library.star(spectrum), theta)
    again = starmill.Spectrum(spectrum.wave, spectrum.flux, ivar=spectrum.ivar,
                              name=spectrum.name, sigma=1.2, systematic=1.0)
    model = starmill.model(library.star(again), theta)
    # errors of 1 with 1 added in quadrature
    assert model.chisq["b"] == pytest.approx(plain.chisq["b"] / 2, rel=1e-3)


def test_a_guess_is_near(library, made):
    spectrum, theta = made
    guess, chisq = starmill.guess(library.star(spectrum), 4)
    assert guess.shape == (len(chisq), theta.size) and (np.diff(chisq) >= 0).all()
    assert abs(guess[0, 0] - theta[0]) < 60  # a bin of the guess


def test_what_is_wrong_is_said(library, made, tmp_path):
    spectrum, theta = made
    with pytest.raises(starmill.StarmillError, match="nowhere.h5") as caught:
        starmill.Library(str(tmp_path / "nowhere.h5"))
    again = pickle.loads(pickle.dumps(caught.value))  # as from a worker process
    assert (again.code, str(again)) == (caught.value.code, str(caught.value)) and again.code == 3
    star = library.star(spectrum)
    for error, match, call, *given in (
            (starmill.StarmillError, "npolly", lambda: starmill.Library(LIBRARY, npolly=3)),
            (ValueError, "ivar or error", starmill.Spectrum, [1, 2], [1, 2]),
            (ValueError, "flux has shape", starmill.Spectrum, [1, 2, 3], [1, 2], [1, 1, 1]),
            (ValueError, "single precision", starmill.Spectrum, [1, 2], [1e-20, 0], [1e41, 1e40]),
            (ValueError, "theta has shape", starmill.loglike, star, theta[:3]),
            (ValueError, "theta has 2", starmill.fix_model_error, star, [theta, theta]),
            (ValueError, "theta has 2", starmill.template, library, [theta, theta], spectrum.wave),
            (ValueError, "theta has 0", starmill.template, library, np.empty((0, 6)), spectrum.wave),
            (ValueError, "flux has no unit",
             lambda: starmill.Spectrum([1, 2], [1, 2], error=Quantity([1, 2], 1e-3))),
            (starmill.StarmillError, "max_vel", starmill.model, star, theta + 5000 * np.eye(6)[0]),
            (TypeError, "not of Endless", library.star, type("Endless", (), {"__getitem__": lambda s, i: s})()),
            (TypeError, "list of stars", starmill.fit, star),
            (TypeError, "list of stars", starmill.fit, [spectrum]),
            (KeyError, "NONE", lambda: starmill.open_result(RESULT)["NONE"])):
        with pytest.raises(error, match=match):
            call(*given)


def test_masked_and_wide_values_are_bad_pixels():
    masked = np.ma.MaskedArray([1.0, 2, 3], [0, 1, 0])
    spectrum = starmill.Spectrum(masked.data, masked, ivar=masked, mask=[0, 1 << 40, 3])
    assert np.isnan([spectrum.flux[1], spectrum.ivar[1]]).all() and spectrum.flux[2] == 3
    assert list(spectrum.mask) == [0, -2**31, 3]
    # not bit 0, which mask_ignore may have
    for mask in [0.5, 0], [True, False], np.ma.MaskedArray(np.uint8([2, 0]), [1, 0]):
        assert list(starmill.Spectrum([1, 2], [1, 2], [1, 2], mask=mask).mask) == [-1, 0]


def test_attributes_may_be_set(library, made):
    spectrum, theta = made
    own = replace(spectrum)
    own.flux = spectrum.flux.astype(float) + 1
    new = replace(spectrum, flux=own.flux)
    assert starmill.loglike(library.star(own), theta) == starmill.loglike(library.star(new), theta)
    own.flux = own.flux[:9]
    with pytest.raises(ValueError, match="flux has shape"):
        library.star(own)


def test_arrays_are_copied():
    given = {name: np.ones(2, "f4") for name in ("flux", "ivar", "sigma", "systematic")}
    given.update(wave=np.ones(2), resolution=np.ones((1, 2), "f4"))
    spectrum = starmill.Spectrum(**given)
    for name, array in given.items():
        array += 1
        assert (getattr(spectrum, name) == 1).all(), name


class Quantity:
    """As Astropy's, with a number for a unit."""

    def __init__(self, value, unit):
        self.value, self.unit = np.array(value), unit

    def __array__(self, dtype=None, copy=None):
        return self.value.astype(dtype)

    def to_value(self, unit):
        return self.value * self.unit / unit


def test_errors_come_in_the_unit_of_the_flux():
    flux = Quantity([1.0, 2.0], 1e-3)
    spectrum = starmill.Spectrum([1, 2], flux, error=Quantity([5.0, 4.0], 1e-4),
                                 systematic=Quantity(1.0, 1e-3))
    np.testing.assert_allclose(spectrum.ivar, [4, 6.25], rtol=1e-6)
    np.testing.assert_allclose(spectrum.systematic, 1)
    spectrum = starmill.Spectrum([1, 2], flux, Quantity([4e6, 1e6], 1.0))
    np.testing.assert_allclose(spectrum.ivar, [4, 1], rtol=1e-6)


class Unit(float):
    """As Astropy's, of columns."""

    def __pow__(self, power):
        return Unit(float(self) ** power)

    def to(self, other):
        return self / (1 if other == "Angstrom" else other)


def column(values, mask, unit):
    made = np.ma.MaskedArray(values, mask).view(type("Column", (np.ma.MaskedArray,), {}))
    made.unit = Unit(unit)
    return made


def test_columns_of_astropy_have_units_and_masks():
    spectrum = starmill.Spectrum(column([500, 501], False, 10), column([1.0, 2], [0, 1], 1),
                                 error=column([1.0, 2], [1, 0], 1e-3))
    assert list(spectrum.wave) == [5000, 5010] and np.isnan(spectrum.flux[1])
    np.testing.assert_allclose(spectrum.ivar, [0, 2.5e5], rtol=1e-6)


def test_threads_take_a_library_each(made):
    spectrum, theta = made
    values = {}

    def work(i):
        star = starmill.Library(LIBRARY, format="desi").star(spectrum)
        values[i] = [starmill.loglike(star, theta + [k, 0, 0, 0, 0, 0]) for k in range(20)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values[0] == values[1] == values[2] and len(values[0]) == 20
