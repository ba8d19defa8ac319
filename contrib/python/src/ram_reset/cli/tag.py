# SPDX-License-Identifier: GPL-2.0-or-later
"""The name of a snapshot, as an option."""

import argparse

from ram_reset.spec import NAME


def check_tag(parser: argparse.ArgumentParser, tag: str) -> None:
    """End with a usage error if savevm does not take it."""
    if not NAME.fullmatch(tag):
        parser.error(f"--snapshot '{tag}' is not a name for savevm; use "
                     'letters, digits and - _ . but not digits only')
