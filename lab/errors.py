"""What goes wrong with a lab, in a sentence that a user can act on."""

from configs.errors import SpecsweepError


class LabError(SpecsweepError):
    """The lab can't do what was asked; the text is one line with the remedy."""
