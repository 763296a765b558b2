"""How the free numbers are found: Levenberg-Marquardt or gradient descent, in a resumable loop."""
