"""Tier 2: a root trace whose device work is static as a graph that is captured once and launched on a hit."""
