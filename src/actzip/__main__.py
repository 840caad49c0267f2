"""The command `actzip`, and ``python -m actzip``: the command line, where it is installed."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; without its packages, say in a line how to get them."""
    try:
        from actzip import cli
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        print("The command line needs more packages: pip install 'actzip[bench]'", file=sys.stderr)
        raise SystemExit(2) from None
    cli.main()


if __name__ == "__main__":
    main()
