"""Shapes of the two model families: the published ones (`full`) and small ones of the same structure (`tiny`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """Everything that distinguishes one decoder-only transformer from another here."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    rope_theta: float
    eps: float
    qk_norm: bool = False
    # (factor, low frequency factor, high frequency factor, original context) of Llama 3's scaling of the rotary frequencies
    rope_scaling: tuple[float, float, float, int] | None = None


LLAMA = {
    "full": Config("Llama-3.2-1B", layers=16, hidden=2048, heads=32, kv_heads=8, head_dim=64, intermediate=8192,
                   vocabulary=128256, rope_theta=500000.0, eps=1e-5, rope_scaling=(32.0, 1.0, 4.0, 8192)),
    "tiny": Config("Llama-3.2, tiny", layers=2, hidden=128, heads=4, kv_heads=2, head_dim=32, intermediate=320,
                   vocabulary=512, rope_theta=500000.0, eps=1e-5, rope_scaling=(32.0, 1.0, 4.0, 8192)),
}  # fmt: skip

QWEN3 = {
    "full": Config("Qwen3-0.6B", layers=28, hidden=1024, heads=16, kv_heads=8, head_dim=128, intermediate=3072,
                   vocabulary=151936, rope_theta=1000000.0, eps=1e-6, qk_norm=True),
    "tiny": Config("Qwen3, tiny", layers=2, hidden=96, heads=4, kv_heads=2, head_dim=32, intermediate=256,
                   vocabulary=512, rope_theta=1000000.0, eps=1e-6, qk_norm=True),
}  # fmt: skip
