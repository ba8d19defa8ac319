# SPDX-License-Identifier: GPL-2.0-or-later
"""Machines for asyncio; ram_reset has the synchronous twins."""

from ram_reset.channel import Agent, Channel, Result, Serial
from ram_reset.machine import Machine
from ram_reset.pool import Pool
from ram_reset.region import Region

__all__ = ['Agent', 'Channel', 'Machine', 'Pool', 'Region', 'Result',
           'Serial']
