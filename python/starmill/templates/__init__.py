# SPDX-License-Identifier: BSD-3-Clause
"""Libraries of templates: grids and spectra in, a library out."""
