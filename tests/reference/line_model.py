"""The line model of docs/science/line-model.md once more, in NumPy and SciPy and float64.

It was written from that page and from the tables src/line_model/line_list.inc and
src/line_model/line_elements.inc alone, without a look at the C code, so that the two can judge
each other.  It takes no short cuts: the Voigt function is SciPy's, equations are solved
to rounding, and nothing is left out that the page does not leave out.

    flux, cont = line_model.flux([5777, 4.44, 0, 0], ln_wave)

labels are Teff / K, log g / cgs, [Fe/H] and [alpha/Fe]; ln_wave is ln of the vacuum
wavelength / A, ascending; flux and cont are erg / (s cm2 A) at the surface.
A full spectrum of 110,000 pixels takes a few seconds.
"""

import os
import re

import numpy as np
from scipy.optimize import brentq
from scipy.special import gamma, wofz

SOURCE = os.environ.get(
    "MILL_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
)

K_ERG, K_EV = 1.380649e-16, 8.617333262e-5
H_ERG_S, C_CM_S, C2 = 6.62607015e-27, 2.99792458e10, 1.438776877
U_G, SAHA, U_ME = 1.66053907e-24, 2.4146830e15, 1822.8885
THOMSON, PI_E2_MC = 6.6524587e-25, 0.02654008
CHI_H, LIMIT_AA = 13.5984, 911.7533

ALPHA_ELEMENTS = "O Mg Si S Ca Ti".split()
DONORS = "H C Na Mg Al Si S K Ca Cr Fe Ni".split()

# log tau
LAYERS = [-5.0, -4.2, -3.5, -2.9, -2.4, -1.9, -1.5, -1.1, -0.8, -0.5, -0.2, 0.1, 0.3, 0.5, 0.8, 1.1]
CUT_LAYER = 0.1
NODE_STEP = 2.5e-4

# John 1988, free-free of H-: rows n = 1 ... 6, columns A ... F
FREE_FREE_BLUE = np.array([
    [518.1021, -734.8666, 1021.1775, -479.0721, 93.1373, -6.4285],
    [473.2636, 1443.4137, -1977.3395, 922.3575, -178.9275, 12.3600],
    [-482.2089, -737.1616, 1096.8827, -521.1341, 101.7963, -7.0571],
    [115.5291, 169.6374, -245.6490, 114.2430, -21.9972, 1.5097],
    [0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0],
])
FREE_FREE_RED = np.array([
    [0, 0, 0, 0, 0, 0],
    [2483.3460, 285.8270, -2054.2910, 2827.7760, -1341.5370, 208.9520],
    [-3449.8890, -1158.3820, 8746.5230, -11485.6320, 5303.6090, -812.9390],
    [2200.0400, 2427.7190, -13651.1050, 16755.5240, -7510.4940, 1132.7380],
    [-696.2710, -1841.4000, 8624.9700, -10051.5300, 4400.0670, -655.0200],
    [88.2830, 444.5170, -1863.8640, 2095.2880, -901.7880, 132.9850],
])

# oscillator strengths of hydrogen from m = n + 1 on
OSCILLATOR = {
    2: [0.64075, 0.11932, 0.04467, 0.022093, 0.012705, 0.0080356, 0.0054289, 0.0038506, 0.0028354,
        0.002151, 0.0016719, 0.0013262, 0.0010702, 0.00087645, 0.00072701, 0.00060986, 0.00051669,
        0.00044164, 0.00038051, 0.00033019, 0.0002884, 0.00025339],
    3: [0.8421, 0.15058, 0.05584, 0.027685, 0.016036, 0.010234, 0.0069797, 0.0049964, 0.0037115,
        0.0028388, 0.0022236, 0.0017763, 0.0014428, 0.0011887, 0.00099158, 0.00083612, 0.00071181,
        0.00061115, 0.00052875, 0.00046062, 0.00040378],
}
STARK = {(2, 3): 0.0090190, (2, 4): 0.0177200, (2, 5): 0.0250700,
         (3, 4): 0.1001, (3, 5): 0.171, (3, 6): 0.223}


def rows_of(name):
    """Numbers (and symbols) of the rows of a table of the line model."""
    with open(os.path.join(SOURCE, "src", "line_model", name)) as f:
        lines = [line for line in f if line.startswith("{")]
    return [re.sub(r'[{}";]', " ", line).replace(",", " ").split() for line in lines]


class Elements:
    """The table of elements, columns as arrays; a mixture is log abundances."""

    def __init__(self):
        rows = rows_of("line_elements.inc")
        number = np.array([[float(x) for x in r[:1] + r[2:]] for r in rows])
        self.z = number[:, 0].astype(int)
        self.symbol = [r[1] for r in rows]
        self.mass, self.abundance = number[:, 1], number[:, 2]
        self.ionisation = number[:, 3:5]
        self.ln_u = number[:, 5:15].reshape(-1, 2, 5)
        self.ln_u2 = number[:, 15]
        self.at = {s: i for i, s in enumerate(self.symbol)}
        self.of_z = {z: i for i, z in enumerate(self.z)}
        self.donor = [self.at[s] for s in DONORS]

    def per_hydrogen(self, feh, alpha):
        """Number of nuclei per hydrogen nucleus."""
        delta = np.full(len(self.z), float(feh))
        delta[self.z <= 2] = 0
        delta[[self.at[s] for s in ALPHA_ELEMENTS]] += alpha
        return 10 ** (self.abundance - 12 + delta)

    def partition(self, temp):
        """ln U [element][stage 0, 1, 2][layer]."""
        x = np.log(np.asarray(temp) / 5000)
        powers = x ** np.arange(5)[:, None] if np.ndim(x) else x ** np.arange(5)
        first = np.tensordot(self.ln_u, powers, 1)
        third = np.broadcast_to(self.ln_u2.reshape((-1, 1) + (1,) * np.ndim(x)),
                                first[:, :1].shape)
        return np.concatenate([first, third], axis=1)

    def saha(self, temp):
        """Phi_s = n(s+1) n_e / n(s) [element][s = 0, 1][layer]."""
        ln_u = self.partition(temp)
        chi = self.ionisation.reshape(self.ionisation.shape + (1,) * np.ndim(temp))
        return 2 * SAHA * temp**1.5 * np.exp(ln_u[:, 1:] - ln_u[:, :-1] - chi / (K_EV * temp))


ELEMENTS = Elements()


def line_table():
    """Columns of the line list: wavelength / A, species, excitation / eV, log gf, log gamma6."""
    table = np.array([[float(x) for x in r] for r in rows_of("line_list.inc")])
    species = table[:, 1].astype(int)
    return table.astype(np.float32).astype(float), species


LINES, SPECIES = line_table()


class Gas:
    """State of the gas at given temperature and pressure, scalars both."""

    def __init__(self, temp, p, a):
        phi = ELEMENTS.saha(temp)
        donor = ELEMENTS.donor
        phi0, phi1 = phi[donor, 0], phi[donor, 1]
        n, sum_a = p / (K_ERG * temp), a.sum()

        def excess(ln_ne):
            ne = np.exp(ln_ne)
            charge = (phi0 * ne + 2 * phi0 * phi1) / (ne * ne + phi0 * ne + phi0 * phi1)
            return np.log((n - ne) / sum_a * (a[donor] @ charge)) - ln_ne

        top = np.log(n * (1 - 1e-9))
        self.ne = np.exp(brentq(excess, np.log(n * 1e-12), top, xtol=1e-13, rtol=1e-14))
        self.nuclei = (n - self.ne) / sum_a
        phi_h = phi[ELEMENTS.at["H"], 0]
        self.n_h = self.nuclei / (1 + phi_h / self.ne)
        self.n_p = self.nuclei - self.n_h
        self.rho = self.nuclei * (a @ ELEMENTS.mass) * U_G


def continuous_opacity(wave, temp, ne, n_h, n_p, sharp_edges=False):
    """chi / cm-1 [wave][layer]; arrays of layers, wave / A a column."""
    theta, pe, micron = 5040 / temp, ne * K_ERG * temp, wave / 1e4
    kt = K_EV * temp
    stim = np.exp(-C2 / (wave * 1e-8 * temp))
    ratio = wave / LIMIT_AA

    d = np.maximum(1 / micron - 1 / 1.6419, 0)
    series = (152.519 + 49.534 * d**0.5 - 118.858 * d + 92.536 * d**1.5 - 34.194 * d**2
              + 4.982 * d**2.5)
    bound = (n_h * pe * 0.750 * temp**-2.5 * np.exp(1e4 * C2 / (1.6419 * temp))
             * 1e-18 * micron**3 * d**1.5 * series)

    powers = np.stack([micron**2, micron**0, 1 / micron, micron**-2, micron**-3, micron**-4])
    free = 0
    for n in range(1, 7):
        blue = np.tensordot(FREE_FREE_BLUE[n - 1], powers, 1)
        red = np.tensordot(FREE_FREE_RED[n - 1], powers, 1)
        free = free + theta ** ((n + 1) / 2) * 1e-29 * np.where(micron < 0.3645, blue, red)
    free = n_h * pe * free

    hydrogen = 0
    for n, gaunt in zip(range(2, 9), (0.88, 0.91, 0.92, 0.93, 0.94, 0.95, 0.95)):
        short = 1 / n**2 <= 1 / ratio
        if sharp_edges:
            dissolved = np.where(short, 1.0, 0.0)
        else:
            gap = np.where(short, 1.0, 1 / n**2 - 1 / ratio)
            beyond = -np.expm1(-(ne + 2.5e13) * gap**-3.75 / 10**23.26)
            dissolved = np.where(short, 1.0, beyond)
        hydrogen = hydrogen + (gaunt * 7.91e-18 * ratio**3 * n**-3.0 * n_h
                               * np.exp(-CHI_H * (1 - 1 / n**2) / kt) * dissolved)
    rest = (7.91e-18 * ratio**3 * kt / (2 * CHI_H)
            * (n_h * np.exp(-CHI_H / kt) * np.expm1(CHI_H / (8.5**2 * kt))
               + n_p * ne / (SAHA * temp**1.5)))

    rayleigh = 5.799e-13 / wave**4 + 1.422e-6 / wave**6 + 2.784 / wave**8
    return (bound + hydrogen + rest) * (1 - stim) + free + n_h * rayleigh + ne * THOMSON


ROSSELAND_WAVE = 2000 * 20 ** (np.arange(24) / 23)


def rosseland(temp, gas):
    """Mean opacity / (cm2/g)."""
    chi = continuous_opacity(ROSSELAND_WAVE, temp, gas.ne, gas.n_h, gas.n_p, True)
    u = C2 / (ROSSELAND_WAVE * 1e-8 * temp)
    weight = u**5 * np.exp(-u) / (1 - np.exp(-u)) ** 2
    return weight.sum() / (weight * gas.rho / chi).sum()


class Atmosphere:
    """The layers of a star, arrays over the 16 layers of the spectrum."""

    def __init__(self, labels):
        teff, logg, feh, alpha = labels
        self.a = ELEMENTS.per_hydrogen(feh, alpha)
        g = 10**logg
        log_tau = np.round(np.arange(-5.5, 1.15, 0.1), 1)
        tau = 10**log_tau
        hopf = 1.05 - 0.45 / (1 + (tau / 0.3) ** 1.2)
        temp = teff * (1 - 0.1 / (1 + (tau / 0.0005) ** 0.7)) * (0.75 * (tau + hopf)) ** 0.25

        def slope(i, ln_p):
            return g * tau[i] / (rosseland(temp[i], Gas(temp[i], np.exp(ln_p), self.a))
                                 * np.exp(ln_p))

        h = 0.1 * np.log(10)
        ln_p = [brentq(lambda x: np.log(slope(0, x)), -25, 25, xtol=1e-11)]
        for i in range(1, len(tau)):
            f0 = slope(i - 1, ln_p[-1])
            target = ln_p[-1] + 0.5 * h * f0
            ln_p.append(brentq(lambda x, i=i, t=target: t + 0.5 * h * slope(i, x) - x,
                               ln_p[-1] - 0.01, ln_p[-1] + 2, xtol=1e-11))

        keep = [int(np.argmin(abs(log_tau - x))) for x in LAYERS]
        self.tau, self.temp, self.p = tau[keep], temp[keep], np.exp(ln_p)[keep]
        gas = [Gas(t, p, self.a) for t, p in zip(self.temp, self.p)]
        self.ne, self.n_h, self.n_p, self.nuclei, self.rho = (
            np.array([getattr(x, name) for x in gas])
            for name in ("ne", "n_h", "n_p", "nuclei", "rho")
        )
        self.rho_kappa = self.rho * np.array([rosseland(t, x) for t, x in zip(self.temp, gas)])
        self.xi = (2.5 - 0.2 * logg) * 1e5

        # integral of r d tau for r linear in ln tau
        step, width = np.log(self.tau[1:] / self.tau[:-1]), np.diff(self.tau)
        self.end = np.concatenate([[self.tau[0]], self.tau[1:] - width / step])
        self.begin = np.concatenate([width - self.end[1:], [0]])

        self.ln_u = ELEMENTS.partition(self.temp)
        phi = ELEMENTS.saha(self.temp)
        x1, x2 = phi[:, 0] / self.ne, phi[:, 1] / self.ne
        total = 1 + x1 + x1 * x2
        self.share = np.stack([1 / total, x1 / total], axis=1)
        carbon, oxygen = ELEMENTS.at["C"], ELEMENTS.at["O"]

        kt = K_EV * self.temp
        mass = 12.01 * 16.00 / (12.01 + 16.00)
        q = self.temp / (C2 * 1.9225) / (1 - np.exp(-C2 * 2143.3 / self.temp))
        co = (SAHA * (U_ME * mass * self.temp) ** 1.5
              * np.exp(self.ln_u[carbon, 0] + self.ln_u[oxygen, 0] - 11.09 / kt) / q)
        co = co * (1 + x1[carbon]) * (1 + x1[oxygen])
        n_c, n_o = self.nuclei * self.a[carbon], self.nuclei * self.a[oxygen]
        b = n_c + n_o + co
        self.free_carbon = 1 - 2 * n_o / (b + np.sqrt(b * b - 4 * n_c * n_o))

        mass = 12.01 * 1.008 / (12.01 + 1.008)
        self.ch = (self.over_partition(carbon, 0) * self.n_h / 2 * np.exp(3.465 / kt)
                   / (SAHA * (U_ME * mass * self.temp) ** 1.5))

    def over_partition(self, element, stage):
        """Number density of an atom or ion over its partition function."""
        n = self.nuclei * self.a[element] * self.share[element, stage]
        if ELEMENTS.symbol[element] == "C":
            n = n * self.free_carbon
        return n / np.exp(self.ln_u[element, stage])

    def doppler(self, mass):
        """Doppler width / (cm/s)."""
        return np.sqrt(2 * K_ERG * self.temp / (mass * U_G) + self.xi**2)

    def emergent(self, r, source):
        """Flux of opacities and sources [wave][layer]."""
        t = np.concatenate(
            [r[:, :1] * self.tau[0],
             r[:, :1] * self.tau[0]
             + np.cumsum(self.begin[:-1] * r[:, :-1] + self.end[1:] * r[:, 1:], axis=1)], axis=1)
        total = 0
        for sign in (-1, 1):
            mu, weight = (6 + sign * np.sqrt(6)) / 10, 1 / 4 + sign * np.sqrt(6) / 36
            e = np.exp(-t / (2 * mu))
            ray = (e[:, :-1] ** 2 + 4 * e[:, :-1] * e[:, 1:] + e[:, 1:] ** 2) / 6
            total = total + weight * (source[:, 0] + (np.diff(source, axis=1) * ray).sum(axis=1))
        return 2 * np.pi * total * 1e-8  # per cm to per A


def hydrogen_lines(star):
    """For every line of Balmer and Paschen: ln of the wavelength, strength, widths s, l, delta."""
    kt = K_EV * star.temp
    v = np.sqrt(8 * K_ERG * star.temp / (np.pi * 0.504 * U_G))
    delta = star.doppler(1.008) / C_CM_S
    for n, oscillators in OSCILLATOR.items():
        for m, f in enumerate(oscillators, n + 1):
            wave = LIMIT_AA / (1 / n**2 - 1 / m**2)
            cm = wave * 1e-8
            c = STARK.get((n, m), 5.5e-5 * n**4 * m**4 / (m**2 - n**2) / (1 + 0.13 / (m - n)))
            stark = 2.5047 * c * 1.25e-9 * star.ne ** (2 / 3) / wave
            sigma, alpha = {3: (1180, 0.677), 4: (2320, 0.455)}.get(m, (4208, 0.380))
            collisions = (star.n_h * (4 / np.pi) ** (alpha / 2) * gamma(2 - alpha / 2) * v
                          * sigma * 2.8002852e-17 * (v / 1e6) ** -alpha)
            lorentz = (collisions + 3e8) * cm / (2 * np.pi * C_CM_S)
            left = np.exp(-(star.ne + 2.5e13) * m**7.5 / 10**23.26)
            strength = (PI_E2_MC * f * star.n_h * n**2 * np.exp(-CHI_H * (1 - 1 / n**2) / kt) * left
                        * (1 - np.exp(-C2 / (cm * star.temp))) * cm / C_CM_S / star.rho_kappa)
            yield np.log(wave), strength, stark, lorentz, delta


def hydrogen_profile(x, s, l, delta):
    """phi [x][layer], x a column."""
    x = abs(x)
    b = s + l + delta
    core = (1 - (s / b) ** 1.5 - l / b) * np.exp(-(x / delta) ** 2) / (np.sqrt(np.pi) * delta)
    return 0.378413 * s**1.5 / (x**2.5 + b**2.5) + l / np.pi / (x**2 + b**2) + core


def add_hydrogen(star, ln_wave, r, near):
    """Add the part of the hydrogen lines that is evaluated at pixels (near) or at nodes."""
    reach = 0.01 if near else 0.04
    for ln_line, strength, s, l, delta in hydrogen_lines(star):
        i, j = np.searchsorted(ln_wave, [ln_line - reach, ln_line + reach])
        if i == j:
            continue
        x = (ln_wave[i:j] - ln_line)[:, None]
        inner = np.maximum(1 - (x / 0.01) ** 2, 0) ** 2
        part = inner if near else (1 - inner) * (1 - (x / 0.04) ** 8) ** 2
        r[i:j] += strength * hydrogen_profile(x, s, l, delta) * part


def metal_lines(star):
    """Strength s, damping a, width delta = v_D / c [line][layer] and cut-off X [line]."""
    wave, excitation, log_gf, log_g6 = LINES[:, 0], LINES[:, 2], LINES[:, 3], LINES[:, 4]
    cm = wave[:, None] * 1e-8
    molecule = SPECIES == 106
    number = np.empty((len(wave), len(star.temp)))
    width = np.empty_like(number)
    ionisation, charge2 = np.full(len(wave), np.nan), np.ones(len(wave))
    for species in np.unique(SPECIES):
        rows = SPECIES == species
        if species == 106:
            number[rows], width[rows] = star.ch, star.doppler(13.018)
            ionisation[rows] = 10.0  # any: its widths are not computed from it
            continue
        element, stage = ELEMENTS.of_z[species // 100], species % 100
        number[rows] = star.over_partition(element, stage)
        width[rows] = star.doppler(ELEMENTS.mass[element])
        ionisation[rows] = ELEMENTS.ionisation[element, stage]
        charge2[rows] = (1 + stage) ** 2

    lower = np.maximum(ionisation - excitation, 0.5)
    upper = np.maximum(lower - 1e8 * C2 * K_EV / wave, 0.5)
    g4 = np.where(molecule, 0, 1e-8 * (CHI_H * charge2 / upper) ** 2.5 / charge2)
    unsoeld = 1.35e-7 * np.maximum(charge2 * (1 / upper**2 - 1 / lower**2), 1e-3) ** 0.4
    g6 = np.where(molecule, 1e-8, np.where(log_g6 == 0, unsoeld, 10**log_g6))
    n_he = star.nuclei * star.a[ELEMENTS.at["He"]]
    t4 = star.temp / 1e4
    damping = ((0.2223e16 / wave**2)[:, None] + g4[:, None] * star.ne * t4 ** (1 / 6)
               + g6[:, None] * t4**0.35 * (star.n_h + 0.42 * n_he))
    a = damping * cm / (4 * np.pi * width)

    s = (PI_E2_MC * 10 ** log_gf[:, None] * cm / (np.sqrt(np.pi) * width) * number
         * np.exp(-excitation[:, None] / (K_EV * star.temp))
         * (1 - np.exp(-C2 / (cm * star.temp))) / star.rho_kappa)

    delta = width / C_CM_S
    weight = (star.end + star.begin) * np.exp(-star.tau)
    y2 = (1.3 * delta[:, LAYERS.index(CUT_LAYER)] ** 2 * np.log1p((weight * s).sum(axis=1) / 3e-4)
          + (weight * s * a * delta**2).sum(axis=1) / (np.sqrt(np.pi) * 3e-4))
    return s, a, delta, np.sqrt(y2 / (1 + y2 / 0.03**2))


def add_metals(star, ln_wave, r):
    """Add the opacity of all lines of the list."""
    s, a, delta, cut = metal_lines(star)
    ln_line = np.log(LINES[:, 0])
    first = np.searchsorted(ln_wave, ln_line - cut)
    last = np.searchsorted(ln_wave, ln_line + cut)
    for k in np.flatnonzero(last > first):
        i, j = first[k], last[k]
        x = (ln_wave[i:j] - ln_line[k])[:, None]
        inside = np.maximum(1 - (x / cut[k]) ** 8, 0) ** 2
        r[i:j] += s[k] * wofz(x / delta[k] + 1j * a[k]).real * inside


def between(ln_node, value, ln_wave):
    """Linear in ln wavelength between nodes, for all layers."""
    i = np.clip(np.searchsorted(ln_node, ln_wave) - 1, 0, len(ln_node) - 2)
    f = ((ln_wave - ln_node[i]) / NODE_STEP).reshape((-1,) + (1,) * (value.ndim - 1))
    return value[i] * (1 - f) + value[i + 1] * f


def flux(labels, ln_wave):
    """Flux and continuum of a star at ln wavelengths, see above."""
    ln_wave = np.asarray(ln_wave, float)
    star = labels if isinstance(labels, Atmosphere) else Atmosphere(labels)
    ln_node = NODE_STEP * np.arange(np.floor(ln_wave[0] / NODE_STEP),
                                    np.ceil(ln_wave[-1] / NODE_STEP) + 1)
    node = np.exp(ln_node)[:, None]
    r = continuous_opacity(node, star.temp, star.ne, star.n_h, star.n_p) / star.rho_kappa
    cm = node * 1e-8
    source = 2 * H_ERG_S * C_CM_S**2 / cm**5 / np.expm1(C2 / (cm * star.temp))
    cont = between(ln_node, star.emergent(r, source), ln_wave)
    add_hydrogen(star, ln_node, r, near=False)
    r = between(ln_node, r, ln_wave)
    source = between(ln_node, source, ln_wave)
    add_hydrogen(star, ln_wave, r, near=True)
    add_metals(star, ln_wave, r)
    return star.emergent(r, source), cont
