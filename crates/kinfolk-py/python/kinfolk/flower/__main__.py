"""`python -m kinfolk.flower`: what `kinfolk run --on flower` and `kinfolk fit --on flower` start."""

from .submit import main

main()
