"""Where cells run: one small protocol; `local` is a subprocess of this machine, `sky` is a spot cluster."""
