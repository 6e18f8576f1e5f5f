"""Where cells run: one small protocol; `local` is a subprocess here, `skypilot` whatever SkyPilot reaches."""
