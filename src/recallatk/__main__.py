"""`python -m recallatk`."""

from recallatk.cli import main

main()
