"""The figures of PipeDream's papers, published beside what the library gets."""
