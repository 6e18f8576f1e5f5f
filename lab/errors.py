"""What goes wrong with a lab, in a sentence that a user can act on."""


class LabError(RuntimeError):
    """The lab can't do what was asked; the text is one line with the remedy."""
