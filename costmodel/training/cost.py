"""Money, energy and emissions of so many GPUs for so long."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from costmodel.description.device import Device
from costmodel.formulas.systems import training_run as formulas
from costmodel.text.checks import kind, positive_int, real
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief

JOULES_PER_KILOWATT_HOUR = 3.6e6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tariff:
    """What an hour of a GPU and its electricity cost; all of it the user's, none of it known to this library.

    Parameters
    ----------
    gpu_hour : price of a GPU for an hour, in any currency
    power : of a GPU at its limit [W]; the device's, where the catalogue knows it, if not given
    power_utilisation : mean power over that at the limit
    overhead : energy of the site over that of its GPUs: hosts, network, cooling (of which PUE is a part)
    carbon_intensity_kg_per_kwh : of the electricity [kg of carbon dioxide a kilowatt-hour]

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    """

    gpu_hour: float | None = None
    power: float | None = None
    power_utilisation: float = 1.0
    overhead: float = 1.0
    carbon_intensity_kg_per_kwh: float | None = None

    __repr__ = brief

    def __post_init__(self) -> None:
        if self.gpu_hour is not None:
            real("gpu_hour", self.gpu_hour, 0.0, 1e9)
        if self.power is not None:
            real("power", self.power, 1e-3, 1e6)
        real("power_utilisation", self.power_utilisation, 0.0, 2.0)
        real("overhead", self.overhead, 1.0, 100.0)
        if self.carbon_intensity_kg_per_kwh is not None:
            real("carbon_intensity_kg_per_kwh", self.carbon_intensity_kg_per_kwh, 0.0, 100.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run takes; None where nothing tells it."""

    gpu_hours: float  # of all GPUs together
    price: float | None  # in the currency of the tariff
    energy: float | None  # [J]
    emissions: float | None  # of carbon dioxide [kg]

    __repr__ = brief


def cost(tariff: Tariff, device: Device, devices: int, time: float) -> Cost:
    """GPU-hours, price, energy and emissions of a run.

    Parameters
    ----------
    tariff : the user's prices
    device : what runs, whose power limit serves where the tariff has none
    devices : how many
    time : of the run [s]

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected, also for a carbon intensity without a power

    Examples
    --------
    >>> from costmodel import load_device
    >>> one_day = cost(Tariff(gpu_hour=2.0), load_device("h100-sxm"), 8, 86400.0)
    >>> one_day.gpu_hours, one_day.price, one_day.energy / JOULES_PER_KILOWATT_HOUR
    (192.0, 384.0, 134.4)
    """
    kind("tariff", tariff, Tariff, "Tariff(gpu_hour=..., ...)")
    kind("device", device, Device, "load_device(name)")
    positive_int("devices", devices, 10**7)
    real("time", time, 0.0, 1e15)
    power = device.power if tariff.power is None else tariff.power
    energy = emitted = None
    if power is not None:
        energy = float(formulas.energy(power, tariff.power_utilisation, tariff.overhead, float(devices), time))
    if tariff.carbon_intensity_kg_per_kwh is not None:
        if energy is None:
            raise InvalidValue("power", None, f"watts of a {device.name}, to tell emissions: the catalogue has none")
        emitted = float(formulas.emissions(energy, tariff.carbon_intensity_kg_per_kwh / JOULES_PER_KILOWATT_HOUR))
    return Cost(
        gpu_hours=float(formulas.device_hours(float(devices), time)),
        price=None if tariff.gpu_hour is None else float(formulas.price(tariff.gpu_hour, float(devices), time)),
        energy=energy, emissions=emitted,
    )  # fmt: skip


def prices_of(price: Mapping[str, float] | float | None, names: Collection[str]) -> dict[str, float]:
    """Prices of a GPU for an hour by the names of what is priced; of what has none, none.

    Parameters
    ----------
    price : one for all, or by name, in any currency; None for none
    names : that a price may have

    Raises
    ------
    InvalidValue
        for the price of something else, or one that can't be

    Examples
    --------
    >>> prices_of(2.5, ["h100", "b200"]), prices_of({"b200": 5.0}, ["h100", "b200"])
    ({'h100': 2.5, 'b200': 2.5}, {'b200': 5.0})
    """
    if price is None:
        return {}
    if not isinstance(price, Mapping):
        return dict.fromkeys(names, real("price", price, 0.0, 1e6))
    for name in price:
        if name not in names:
            raise InvalidValue("price", name, f"a price of {', '.join(names)}")
    return {name: real("price", value, 0.0, 1e6) for name, value in price.items()}
