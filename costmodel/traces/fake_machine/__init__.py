"""A rank without its GPU: the only room that imports torch, and only in the process in which code is traced."""
