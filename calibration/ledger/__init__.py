"""What runs made of estimates when both first met, never scored anew, and the error model that follows from it."""
