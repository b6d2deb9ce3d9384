"""Latitude and longitude to metres: the transverse Mercator projection of WGS 84, as UTM has it."""

from __future__ import annotations

import math

_A, _F = 6_378_137.0, 1 / 298.257223563  # WGS 84: the equator's radius in metres, the flattening
_N = _F / (2 - _F)
_RADIUS = _A / (1 + _N) * (1 + _N**2 / 4 + _N**4 / 64)
# Krueger's series in the third flattening, to the fourth order: far below a millimetre inside a zone.
_SERIES = (
    _N / 2 - 2 * _N**2 / 3 + 5 * _N**3 / 16 + 41 * _N**4 / 180,
    13 * _N**2 / 48 - 3 * _N**3 / 5 + 557 * _N**4 / 1440,
    61 * _N**3 / 240 - 103 * _N**4 / 140,
    49_561 * _N**4 / 161_280,
)
_SCALE, _FALSE_EASTING, _FALSE_NORTHING = 0.9996, 500_000.0, 10_000_000.0


def to_utm(latitude: float, longitude: float, zone: int) -> tuple[float, float]:
    """Easting and northing in metres of a place in degrees, in a zone that is given.

    >>> [round(metres, 2) for metres in to_utm(0.0, 141.0, 54)]
    [500000.0, 0.0]
    """
    phi, offset = math.radians(latitude), math.radians(longitude - (6 * zone - 183))
    e = 2 * math.sqrt(_N) / (1 + _N)
    t = math.sinh(math.atanh(math.sin(phi)) - e * math.atanh(e * math.sin(phi)))
    xi, eta = math.atan2(t, math.cos(offset)), math.atanh(math.sin(offset) / math.hypot(1, t))
    x = eta + sum(a * math.cos(2 * j * xi) * math.sinh(2 * j * eta) for j, a in enumerate(_SERIES, start=1))
    y = xi + sum(a * math.sin(2 * j * xi) * math.cosh(2 * j * eta) for j, a in enumerate(_SERIES, start=1))
    northing = _SCALE * _RADIUS * y
    return _FALSE_EASTING + _SCALE * _RADIUS * x, northing if latitude >= 0 else northing + _FALSE_NORTHING
