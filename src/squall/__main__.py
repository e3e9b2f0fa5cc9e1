"""``python -m squall`` is the ``squall`` command."""

from squall.cli import main

main()
