"""What an engine that isn't vLLM can serve, so that a plan says what it can't before anything is paid for."""
