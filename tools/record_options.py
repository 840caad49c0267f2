"""Records what the commands and their options say: python tools/record_options.py"""

from __future__ import annotations

import importlib
import json

from actzip.cli import COMMANDS
from actzip.commands.recorded import FILE, described

found = {
    name: described(getattr(importlib.import_module(f"actzip.commands.{name}"), name))
    for name in COMMANDS
}
FILE.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
print(f"written: {FILE}")
