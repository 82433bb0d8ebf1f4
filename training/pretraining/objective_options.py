"""The flags that choose an objective of pre-training, and those that some of them have.

They are arguments of its constructor, named in its row of OBJECTIVES.
"""

import dataclasses

import options
from errors import UserError
from modeling.architectures.electra_config import SHARED
from modeling.objectives.table import OBJECTIVES


@dataclasses.dataclass(frozen=True)
class ObjectiveOptions:
    """The choice of an objective, and its own flags."""

    objective: str = options.field(
        "masked_lm_next_sentence",
        choices=tuple(OBJECTIVES),
        help="What to learn. masked_lm_next_sentence: BERT's; masked words, and whether "
        "the second of two spans follows the first. masked_lm: masked words alone. "
        "masked_lm_sentence_order: ALBERT's; masked words, and whether two spans are "
        "swapped; needs records of create_pretraining_data.py --instances=sentence_order. "
        "All others need records of create_pretraining_data.py --masking=dynamic. "
        "next_token: language modelling, for a config whose attention_direction is "
        "left_to_right or right_to_left. bidirectional_lm: both directions at once, for an "
        "ELMo. replaced_tokens: ELECTRA's; a generator fills masks, and a discriminator, "
        "the encoder to use later, finds the tokens that are not the original ones. "
        "permuted: XLNet's; spans of tokens, predicted in a random order. "
        "span_corruption: T5's; a decoder writes the spans that the encoder's text lacks; "
        "needs --vocab_file.",
    )
    generator_hidden_size: float = options.field(
        0.25,
        help="For replaced_tokens: the generator's share of hidden_size. The released "
        "small model has 1.0, base 0.33333, large 0.25.",
    )
    generator_layers: float = options.field(
        1.0, help="For replaced_tokens: the generator's share of num_hidden_layers."
    )
    generator_shares: str = options.field(
        "embeddings",
        choices=SHARED,
        help="For replaced_tokens: what generator and discriminator have in common. all: "
        "one encoder is both.",
    )
    disc_weight: float = options.field(
        50.0, help="For replaced_tokens: the factor of the discriminator's loss."
    )
    repeat_positions: bool = options.field(
        False,
        help="For replaced_tokens: draw masked positions with replacement, as the release "
        "does. A position that is drawn twice counts twice, and two samples for it become "
        "the mean of their ids.",
    )

    released_spans: bool = options.field(
        True,
        help="For permuted: choose spans as XLNet's release does, of 1 to 5 tokens; [CLS] "
        "and [SEP] may be among what fills up the number of predictions, without a loss. "
        "If false, choose only text, in spans of 1 to 5 tokens or, in records of "
        "create_pretraining_data.py --do_whole_word_mask, of 1 to 5 whole words.",
    )
    mask_alpha: int = options.field(
        6,
        help="For permuted: a span of n tokens is in a context of n * mask_alpha // "
        "mask_beta tokens, without other spans.",
    )
    mask_beta: int = options.field(1, help="For permuted: see --mask_alpha.")
    perm_size: int = options.field(
        0,
        help="For permuted: how many tokens are permuted together, the same in each block "
        "of a row; 0 means all.",
    )
    mem_len: int = options.field(
        0,
        help="For permuted, on records of create_pretraining_data.py "
        "--instances=contiguous: how many positions of the rows before it a row sees. "
        "XLNet's release has 384.",
        most=1 << 20,
    )
    noise_density: float = options.field(
        0.15, help="For span_corruption: the share of tokens that a text loses."
    )
    mean_noise_span_length: float = options.field(
        3.0,
        help="For span_corruption: the mean number of tokens of the spans that a text "
        "loses.",
    )

    def __post_init__(self):
        mine = OBJECTIVES[self.objective].options
        for item in dataclasses.fields(ObjectiveOptions):
            if item.name == "objective" or item.name in mine:
                continue
            if getattr(self, item.name) != item.default:
                owners = [n for n, o in OBJECTIVES.items() if item.name in o.options]
                raise UserError(
                    f"--{item.name}={getattr(self, item.name)}: only --objective="
                    f"{' or '.join(owners)} has it, not {self.objective}"
                )
        for name in ("generator_hidden_size", "generator_layers"):
            if not 0 < getattr(self, name) <= 1:
                raise UserError(
                    f"--{name}={getattr(self, name)}: must be above 0 and at most 1"
                )
        if not 0 < self.disc_weight < float("inf"):
            raise UserError(f"--disc_weight={self.disc_weight}: must be above 0")
        if not 0 < self.noise_density < 1:
            raise UserError(
                f"--noise_density={self.noise_density}: must be between 0 and 1"
            )
        if not 1 <= self.mean_noise_span_length < float("inf"):
            raise UserError(
                f"--mean_noise_span_length={self.mean_noise_span_length}: must be at least "
                "1"
            )
        self.check_at_least(0, "perm_size", "mem_len")
        self.check_at_least(1, "mask_beta")
        if self.mask_alpha < self.mask_beta:
            raise UserError(
                f"--mask_alpha={self.mask_alpha}: must be at least --mask_beta, "
                f"{self.mask_beta}, so that a span has a context"
            )
        super().__post_init__()

    def make_objective(self, name: str | None = None):
        """The `Objective` with this name; by default, the chosen one."""
        kind = OBJECTIVES[name or self.objective]
        return kind.load()(**{option: getattr(self, option) for option in kind.options})
