"""How a test ends a run where it is, without a process of its own."""


class Killed(BaseException):
    """As SIGKILL: no part of the program expects it, and nothing catches it."""
