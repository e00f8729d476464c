"""Greedy decoding with a Llama 3.2 model (random weights) whose RMSNorm, RoPE and SwiGLU are user-written Triton kernels.

    python examples/llama_decode.py                             # a tiny model, on the CPU if there is no GPU
    python examples/llama_decode.py --config full --device cuda # the shapes of Llama-3.2-1B

Prints the tokens, whether they and all logits equal eager's bit for bit, and what eager, torch.compile and Trident take.
"""

import sys

from llm.cli import main
from llm.config import LLAMA

if __name__ == "__main__":
    sys.exit(main(LLAMA))
