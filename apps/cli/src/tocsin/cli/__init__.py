"""The tocsin command: the composition root."""
