"""What training code did on a rank without a GPU, recorded; and what it takes, holds and sends, priced from the record."""
