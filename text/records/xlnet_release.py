"""Describes the records of XLNet's release, whose names say how they were made.

Their features are input, is_masked, target, seg_id and label; see
`encoding.OTHER_NAMES` for what these are called here.

Source: zihangdai/xlnet@bbaa3a6 data_utils.py, format_filename and create_tfrecords.
"""

import json
import os
import re
from collections.abc import Iterable

from errors import UserError
from text.files import sources
from text.records.descriptions import Description
from text.tokenizers.vocabulary import SPECIAL_TOKENS

_NAME = re.compile(
    r"(?P<prefix>.+-\d+-\d+)\.(?P<flags>bsz-(?P<rows>\d+)\.seqlen-(?P<length>\d+)\."
    r"reuse-(?P<reuse>\d+)\.(?P<uncased>uncased\.)?(?P<ways>bi|uni)\.alpha-\d+\.beta-\d+\."
    r"(fnp-(?P<predictions>\d+)\.)?)tfrecords"
)
# [PAD], [UNK], [CLS], [SEP] and [MASK]; the release's code has these numbers.
_IDS = (5, 0, 3, 4, 6)


def describe(path: str) -> Description | None:
    """What the name of a file of the release says, and record_info next to it.

    Returns:
        None for other files. Without record_info, the number of records is not known.
    Raises:
        UserError: record_info is damaged.
    """
    folder, name = os.path.split(path)
    found = _NAME.fullmatch(name)
    if not found:
        return None
    rows, length, reuse = (int(found[x]) for x in ("rows", "length", "reuse"))
    predictions = found["predictions"] and int(found["predictions"])
    info = os.path.join(folder, f"record_info-{found['prefix']}.{found['flags']}json")
    output = {"file": name, "instances": None}
    if sources.exists(info):
        output["instances"] = rows * _num_batch(info)
    flags = {
        "instances": "xlnet_release" + ("_bi" if found["ways"] == "bi" else ""),
        "masking": "given",
        "rows_per_batch": rows,
        "reuse_len": reuse,
    }
    return Description(
        outputs=[output],
        max_seq_length=length,
        max_predictions_per_seq=predictions,
        do_lower_case=bool(found["uncased"]),
        special_ids=dict(zip(SPECIAL_TOKENS, _IDS, strict=True)),
        origin={"flags": flags},
        path=info if output["instances"] is not None else path,
    )


def _num_batch(path):
    try:
        with sources.opened(path) as file:
            number = json.load(file)["num_batch"]
        if type(number) is not int or number < 0:
            raise ValueError(f"num_batch is {number!r}")
        return number
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: does not say the number of batches ({error!r}); copy it again, or "
            "remove it"
        ) from error


def find(paths: Iterable[str]) -> dict[str, Description]:
    """The descriptions of those files that are of the release."""
    found = ((path, describe(path)) for path in paths)
    return {path: description for path, description in found if description}
