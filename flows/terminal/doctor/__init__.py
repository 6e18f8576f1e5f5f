"""`sweep doctor`: is everything there that a sweep needs, and can the store be trusted?"""
