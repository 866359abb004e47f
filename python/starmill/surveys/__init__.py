# SPDX-License-Identifier: BSD-3-Clause
"""Spectra of surveys and of files of any origin."""
