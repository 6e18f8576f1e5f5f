"""Programs that a model wrote run here and nowhere else: behind the kernel's fences, held to what they must print."""
