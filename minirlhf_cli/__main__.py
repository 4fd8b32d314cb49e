"""``python -m minirlhf_cli`` is ``minirlhf``."""

import sys

from minirlhf_cli import main

sys.exit(main())
