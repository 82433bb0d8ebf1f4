"""What a model notes of its labels: the names in files, and what people call them."""

from collections.abc import Mapping, Sequence

from errors import UserError
from training.finetuning.labels import Labels, OneClass, SeveralClasses, spell


def state_of(labels: Labels) -> dict:
    """What a model notes of its labels, for `take_up`."""
    state = {"labels": labels.names}
    if isinstance(labels, SeveralClasses):
        state["several_labels"] = True
    if labels.with_display_names.names != labels.names:
        state["label_names"] = labels.with_display_names.names
    return state


def take_up(labels: Labels, state: Mapping, custom: bool, named: bool = False) -> None:
    """Gives labels the names that a trained model noted, unless they have others.

    Args:
        state: what `state_of` returned, read from JSON; or Hugging Face's label_names
            alone, which may not be what files have.
        custom: whether flags say which labels there are.
        named: whether flags say what people call them.
    Raises:
        UserError: they are others.
    """
    names, own_names = state.get("label_names"), labels.names
    learned_names = state.get("labels", names)
    hint = "check --task_name and the model's folder"
    kinds = [
        "numbers" if names is None else "several labels" if several else "one label"
        for names, several in (
            (learned_names, state.get("several_labels", False)),
            (own_names, isinstance(labels, SeveralClasses)),
        )
    ]
    if kinds[0] != kinds[1]:
        hint = "pass the same --label_kind" if custom else hint
        raise UserError(
            f"the model was trained for {kinds[0]} per text, not for {kinds[1]}; {hint}"
        )
    if learned_names is None:
        return
    are_values = "labels" in state
    if not are_values and not (named and own_names) and _are_ambiguous(learned_names):
        raise UserError(
            f"the model's names of labels are empty or repeated: {spell(learned_names)}; "
            "pass --label_names"
            + (", and --labels in the same order" if custom else "")
        )
    if own_names == ():
        labels.names = learned_names
        numbers = {str(number): name for number, name in enumerate(learned_names)}
        if not are_values and numbers.keys().isdisjoint(learned_names):
            labels.relabel = numbers
    elif tuple(learned_names) != own_names and (
        are_values or not _may_be_called(labels, learned_names)
    ):
        hint = "remove --labels, or pass these" if custom else hint
        if not are_values and _places(labels, learned_names) == [None] * len(own_names):
            hint += (
                "; if these are names of the same labels in the same order, pass "
                f"--label_names={spell(learned_names).replace(', ', ',')}"
            )
        shown = own_names if are_values else labels.display_names
        raise UserError(
            f"the model was trained for the labels {spell(learned_names)} in this order, "
            f"not for {spell(shown)}; {hint}"
        )
    # Equal to the files', they name nothing; a data set may know better.
    if names and tuple(names) != labels.names and not named:
        labels.display_names = names


def keep_names(labels: Labels, state: Mapping) -> None:
    """Calls labels what the run that a training continues called the same ones."""
    if "label_names" in state and tuple(state.get("labels") or ()) == labels.names:
        labels.display_names = state["label_names"]


def _are_ambiguous(names):
    return len(set(names)) < len(names) or "" in map(str.strip, names)


def _may_be_called(labels: OneClass, names: Sequence[str]) -> bool:
    """Whether a model's names can be those of labels, number by number."""
    if tuple(names) in (labels.names, labels.display_names):
        return True
    # Numbers may be called anything, but a word that is ours must be in its place.
    are_numbers = labels.names == tuple(map(str, range(len(names))))
    places = enumerate(_places(labels, names))
    fits = all(i == place or (place is None and are_numbers) for i, place in places)
    return fits and len(names) == len(labels.names)


def _places(labels: OneClass, names: Sequence[str]) -> list[int | None]:
    """The numbers that names have among those of labels; None for other names."""
    own = labels.names, labels.display_names
    numbers = {name.casefold(): i for row in own for i, name in enumerate(row)}
    return [numbers.get(name.casefold()) for name in names]
