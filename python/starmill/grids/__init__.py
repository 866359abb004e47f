# SPDX-License-Identifier: BSD-3-Clause
"""A grid of synthetic spectra from packages that anyone can install."""
