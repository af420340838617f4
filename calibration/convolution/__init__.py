"""Constants of convolutions, and the classic networks' share of communication."""
