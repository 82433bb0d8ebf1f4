"""Several networks in one checkpoint, as some architectures are pre-trained.

Their adapters say which; Hugging Face's layout has one network in a file.
"""

from collections.abc import Collection, Container, Iterable, Mapping

import numpy as np

from errors import UserError
from modeling.architectures.config import EncoderConfig
from training.interchange.adapter import CheckpointNetwork
from training.interchange.table import ADAPTERS


def networks_in(names: Container[str]) -> Mapping[str, CheckpointNetwork]:
    """The networks of a checkpoint with these released names, if it has several."""
    for row in ADAPTERS.values():
        if row.networks and all(n.head in names for n in row.networks.values()):
            return row.networks
    return {}


def check_wanted(
    path: str, names: Container[str], variable_names: Container[str]
) -> None:
    """Refuses to read a network that must be taken out of its checkpoint first.

    If all are equally large, its head would fit the encoder of another one.

    Args:
        names: those in the checkpoint.
        variable_names: of the model.
    """
    networks = networks_in(names)
    if all(network.head in variable_names for network in networks.values()):
        return
    for name, network in networks.items():
        if network.flags and network.head in variable_names:
            raise UserError(
                f"{path}: contains {_join_names(networks)}, and only the {name} "
                f"{network.does}; take it out with convert_checkpoint.py --network={name}"
            )


def check_whole(
    path: str, names: Container[str], variable_names: Collection[str]
) -> None:
    """Refuses a checkpoint that has only a part of a network: the rest would be random.

    Args: as for `check_wanted`.
    """
    for name, network in networks_in(names).items():
        lacking = {
            n for n in variable_names if n.startswith(network.scopes) and n not in names
        }
        if network.flags and lacking and network.head in variable_names:
            raise UserError(
                f"{path}: its {name} does not fit the model; check {network.flags}: it "
                f"lacks {min(lacking)}"
            )


def of_names(names: Iterable[str]) -> tuple[str, CheckpointNetwork] | None:
    """The network, other than that of the config, to which all these names belong."""
    for row in ADAPTERS.values():
        for name, network in row.networks.items():
            if network.flags and all(n.startswith(network.scopes) for n in names):
                return name, network
    return None


def advice(missing: Iterable[str], names: Container[str]) -> str | None:
    """What to do if a checkpoint has the head of another network than the missing one.

    Args:
        missing: names of variables that are not in the checkpoint.
        names: those in the checkpoint.
    """
    if not (named_network := of_names(missing)):
        return None
    name, network = named_network
    for row in ADAPTERS.values():
        others = {
            k: n for k, n in row.networks.items() if k != name and n.head in names
        }
        if name in row.networks and others:
            return (
                f"it holds {_join_names(others)}, and only a {name} {network.does}: take "
                "that out of the checkpoint of both with convert_checkpoint.py "
                f"--network={name}"
            )
    return None


def take(
    path: str,
    tensors: Mapping[str, np.ndarray],
    config: EncoderConfig,
    chosen: str | None,
    alone: bool,
) -> tuple[Mapping[str, np.ndarray], EncoderConfig]:
    """One network of a checkpoint of several, as a model of its own.

    Args:
        path: of the checkpoint.
        tensors: by their released names.
        chosen: its name; None leaves everything as it is.
        alone: refuse to leave several networks.
    """
    networks = networks_in(tensors)
    if chosen and chosen not in networks:
        expected = next(
            row.networks for row in ADAPTERS.values() if chosen in row.networks
        )
        raise UserError(
            f"{path}: does not contain both {_join_names(expected)}; leave --network out"
        )
    if chosen:
        return networks[chosen].take(tensors, config)
    if networks and alone:
        raise UserError(
            f"{path}: contains {_join_names(networks)}; only one at a time can be "
            f"changed or written so; pass --network={' or '.join(networks)}"
        )
    return tensors, config


def _join_names(networks: Mapping[str, CheckpointNetwork]) -> str:
    return " and ".join(f"a {name}" for name in networks)
