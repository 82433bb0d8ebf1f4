"""Two BERTs that read in one direction each, side by side (arXiv:1810.04805, 5.1)."""

from extensions import Extension

EXTENSION = Extension(
    architectures={
        "side_by_side": (
            "family.side_by_side.encoder:SideBySideConfig",
            "family.side_by_side.encoder:SideBySideEncoder",
        )
    },
)
