"""Uses what other folders use, too."""

from tests.flat import flat  # noqa: F401
