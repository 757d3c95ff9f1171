"""``python -m grand`` is ``grand``."""

from grand.cli import main

main()
