"""What a training reports, kept instead of printed."""


class Log:
    """Takes the place of a `training.run.report.Report`."""

    def __init__(self):
        self.begun = None
        self.rows = []
        self.held_out = []
        self.said = []

    def begin(self, step, by_xla=False):
        self.begun = step

    def training(self, step, values, *, updates, seconds):
        self.rows.append({"step": step, "updates": updates, **values})

    def live(self, step, values, *, updates, seconds):
        pass

    def evaluation(self, step, values):
        self.held_out.append((step, values))

    def say(self, message):
        self.said.append(message)
