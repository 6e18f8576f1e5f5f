"""Start the server: weights first, then a few tokens, then the door, so that who is answered is answered in full."""

from __future__ import annotations

import os
import sys

from tasks.transformers_engine.arguments import parse
from tasks.transformers_engine.door import Server
from tasks.transformers_engine.turns import Counters, Turns


def main() -> int:
    """Serve until a signal ends the process."""
    arguments = parse()
    # report a wrong argument before torch is imported, which takes seconds
    from tasks.transformers_engine.generation import Generator
    from tasks.transformers_engine.loading import Memory, load, quiet, versions

    quiet()
    loaded = load(arguments)
    memory = Memory(loaded)
    generator = Generator(loaded, arguments, memory)
    print("warming up", flush=True)
    generator.warm_up()
    counters = Counters(arguments.served_model_name, arguments.k)
    turns = Turns(generator, counters, arguments.k, die=lambda: os._exit(1))
    server = Server(arguments, generator, memory, counters, turns, versions())
    turns.start()
    print(f"transformers {versions()} serves {arguments.served_model_name} on {loaded.device}", flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
