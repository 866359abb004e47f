# SPDX-License-Identifier: BSD-3-Clause
"""What the jobs share: errors, files, locks, progress, processes."""
