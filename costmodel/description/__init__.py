"""What is trained, on what, and how: each description frozen, and validated once, where it is made."""
