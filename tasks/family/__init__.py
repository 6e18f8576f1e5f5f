"""The demo's tiny model family: a target and its drafters, one learnt task, shipped with their trainer."""
