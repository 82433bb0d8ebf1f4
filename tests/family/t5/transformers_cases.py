"""T5s of transformers that write text."""

from family.t5.decoder import TextToTextModel

_WRITES = (lambda config, _: TextToTextModel(config), {"logits": ""}, True)
HEADS = {"T5Model": _WRITES, "T5ForConditionalGeneration": _WRITES}
