"""`python -m nas`: the same as the console script."""

from nas.cli.main import main

main()
