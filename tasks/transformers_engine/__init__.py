"""Hugging Face `generate` behind the door that vLLM has: one request at a time, drafted tokens counted.

    python -m tasks.transformers_engine --model M --served-model-name N --host H --port P --max-model-len L ...

It runs in the engine's own environment: torch and transformers, and of the rest of this checkout nothing. Only
`loading.py` and `generation.py` import them; everything else is the standard library.
"""
