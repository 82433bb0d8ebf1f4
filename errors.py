"""The one exception whose message is written for the user."""


class UserError(Exception):
    """Something in the user's input, files or flags is wrong.

    The message is one line: what was found, where (file:line), what is allowed, what to
    do. `command_line.run` prints it without a traceback. All that reads what a user gave
    may raise it, so docstrings seldom repeat that.
    """
