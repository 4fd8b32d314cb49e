"""``python -m minirlhf.cli`` is ``minirlhf``."""

import sys

from minirlhf.cli import main

sys.exit(main())
