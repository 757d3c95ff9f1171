"""``python -m dropnode`` is ``dropnode``."""

from dropnode.cli import main

main()
