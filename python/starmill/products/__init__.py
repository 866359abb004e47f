# SPDX-License-Identifier: BSD-3-Clause
"""What is made of a result: tables, pages, pictures, lists, exports."""
