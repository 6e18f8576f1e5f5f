"""HOW it looks: one offline page (`page`) made from one snapshot's tables; what it says first is in `answer`."""
