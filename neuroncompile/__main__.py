"""`python -m neuroncompile`."""

from neuroncompile.cli import main

raise SystemExit(main())
