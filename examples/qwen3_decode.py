"""Greedy decoding with a Qwen3 model (random weights) whose RMSNorm, RoPE and SwiGLU are user-written Triton kernels.

    python examples/qwen3_decode.py                             # a tiny model, on the CPU if there is no GPU
    python examples/qwen3_decode.py --config full --device cuda # the shapes of Qwen3-0.6B

Prints the tokens, whether they and all logits equal eager's bit for bit, and what eager, torch.compile and Trident take.
"""

import sys

from llm.cli import main
from llm.config import QWEN3

if __name__ == "__main__":
    sys.exit(main(QWEN3))
