"""``python -m actzip``: the command line without its script on the path."""

from actzip.cli import main

main()
