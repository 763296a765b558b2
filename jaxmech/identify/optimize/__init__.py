"""Find the free numbers: Levenberg-Marquardt or gradient descent, in a loop that can be resumed."""
