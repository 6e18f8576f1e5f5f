"""`sweep doctor`: is everything there that a sweep needs, and can the store be trusted?"""

from flows.terminal.doctor.examine import examine

__all__ = ["examine"]
