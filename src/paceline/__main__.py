"""``python -m paceline`` is the command line."""

import sys

from paceline.shells.cli import main

sys.exit(main())
