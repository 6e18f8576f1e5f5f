"""The demo's tiny model family: one learnt task, a target and its drafters, trained once, served by vLLM."""
