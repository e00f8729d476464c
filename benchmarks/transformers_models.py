"""Thirteen models of the `transformers` package at toy sizes, and the steps in which they are called.

Owns the configurations (random weights, nothing is downloaded) and what a step is: a forward pass without a cache, a decode step with
a static or a dynamic cache, or a whole `generate`, of a jitted model or of a plain one inside a frame hook. What must hold: two
sessions of the same case make the same calls in the same order, each on a cache of its own, so that what they return can be compared
bit for bit.

May import: torch, transformers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from transformers import DynamicCache, EncoderDecoderCache, StaticCache

VOCABULARY, CACHE_LENGTH = 64, 64
PROMPTS = (7, 11)  # lengths of the sequences of the two rounds of a case
_SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
_GROUPED: dict[str, Any] = {**_SMALL, "intermediate_size": 48, "num_key_value_heads": 2}
_SEQ2SEQ: dict[str, Any] = {"vocab_size": VOCABULARY, "pad_token_id": 0, "decoder_start_token_id": 1, "eos_token_id": None}


_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers")


@dataclass(frozen=True, slots=True)
class Architecture:
    """How one model is made: `kind` is decoder, encoder, seq2seq, speech, vision or state-space."""

    kind: str
    model: str
    config: str
    options: dict[str, Any]

    def build(self, attention: str, layers: int = 0) -> torch.nn.Module:
        """The model with random weights of a fixed seed. layers: how many, where it is not as many as `options` say."""
        torch.manual_seed(0)
        options: dict[str, Any] = {name: layers if layers and name in _LAYERS else given for name, given in self.options.items()}
        if layers and "layer_types" in options:
            options["layer_types"] = [options["layer_types"][n % 2] for n in range(layers)]
        config = getattr(transformers, self.config)(**options)
        return getattr(transformers, self.model)._from_config(config, attn_implementation=attention).eval()  # type: ignore[no-any-return]


ARCHITECTURES: dict[str, Architecture] = {
    "Llama": Architecture("decoder", "LlamaForCausalLM", "LlamaConfig", _GROUPED),
    "Qwen3": Architecture("decoder", "Qwen3ForCausalLM", "Qwen3Config", {**_GROUPED, "head_dim": 8}),
    "Qwen3-MoE": Architecture("decoder", "Qwen3MoeForCausalLM", "Qwen3MoeConfig",
                              {**_GROUPED, "head_dim": 8, "moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2}),
    "Gemma 3": Architecture("decoder", "Gemma3ForCausalLM", "Gemma3TextConfig",
                            {**_GROUPED, "head_dim": 8, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}),
    "Mistral": Architecture("decoder", "MistralForCausalLM", "MistralConfig", {**_GROUPED, "sliding_window": 8}),
    "Phi-3": Architecture("decoder", "Phi3ForCausalLM", "Phi3Config", _GROUPED),
    "GPT-2": Architecture("decoder", "GPT2LMHeadModel", "GPT2Config",
                          {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128,
                           "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}),
    "OPT": Architecture("decoder", "OPTForCausalLM", "OPTConfig", {**_SMALL, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    "BERT": Architecture("encoder", "BertForMaskedLM", "BertConfig", {**_SMALL, "intermediate_size": 48}),
    "T5": Architecture("seq2seq", "T5ForConditionalGeneration", "T5Config",
                       {**_SEQ2SEQ, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}),
    "ViT": Architecture("vision", "ViTForImageClassification", "ViTConfig",
                        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
                         "image_size": 16, "patch_size": 4}),
    "Whisper": Architecture("speech", "WhisperForConditionalGeneration", "WhisperConfig",
                            {**_SEQ2SEQ, "num_mel_bins": 8, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
                             "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
                             "max_source_positions": 16, "max_target_positions": 64, "bos_token_id": 1, "suppress_tokens": None,
                             "begin_suppress_tokens": None}),
    "Mamba 2": Architecture("state-space", "Mamba2ForCausalLM", "Mamba2Config",
                            {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 8,
                             "n_groups": 2, "state_size": 8, "chunk_size": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}),
}  # fmt: skip

_DECODES = ("decode, static cache", "decode, dynamic cache")
_GENERATES = ("generate, greedy", "generate, sampled", "generate, greedy, static cache")
_HOOKED = ("hook: generate, greedy", "hook: generate, sampled")
_STEPS: dict[str, tuple[str, ...]] = {
    "decoder": ("forward", *_DECODES, *_GENERATES, *_HOOKED),
    "encoder": ("forward",),
    "seq2seq": ("forward", *_DECODES, *_GENERATES, *_HOOKED),
    "speech": ("forward", *_DECODES, *_GENERATES, *_HOOKED),
    "vision": ("forward",),
    "state-space": ("forward", "decode, dynamic cache", "generate, greedy", "generate, sampled", *_HOOKED),
}
GENERATING = tuple(name for name, made in ARCHITECTURES.items() if "generate, greedy" in _STEPS[made.kind])


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table. attention: "eager" or "sdpa". batch: 4 is padded where the model knows padding. A step of the name
    "hook: …" runs the plain model inside a frame hook; all others call what `trident.jit(model)` gives."""

    model: str
    step: str
    attention: str
    batch: int

    @property
    def architecture(self) -> Architecture:
        return ARCHITECTURES[self.model]

    @property
    def generates(self) -> bool:
        """Whether the step is a whole `generate`."""
        return "generate" in self.step

    @property
    def hooked(self) -> bool:
        """Whether the model is a plain one inside a frame hook."""
        return self.step.startswith("hook: ")


def cases(model: str) -> Iterator[Case]:
    """All cases of a model."""
    kind = ARCHITECTURES[model].kind
    for step in _STEPS[kind]:
        for attention in ("eager",) if kind == "state-space" else ("eager", "sdpa"):
            for batch in (1, 4):
                # What a frame hook captures of `generate` takes a minute to record: once a model, with padding.
                if not step.startswith("hook") or batch == 4 and (attention == "sdpa" or kind == "state-space"):
                    yield Case(model, step, attention, batch)


Step = Callable[[Any], Any]
"""Calls the given model once, for the next step of its session; the result."""


def _tokens(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randint(2, VOCABULARY, shape, generator=generator)


def _mask(batch: int, length: int) -> torch.Tensor:
    """Row n has n padding tokens on the left."""
    return (torch.arange(length) >= torch.arange(batch)[:, None]).long()


def session(case: Case, model: Any, length: int, seed: int = 0) -> Step:
    """A session of a case on sequences of `length`; `model` computes what comes before the first step."""
    generator = torch.Generator().manual_seed(100 * length + seed)
    if case.generates:
        return generation(case, length, generator)
    if case.step == "forward":
        return _forward(case, length, generator)
    made: Callable[..., Step] = _decode_after_encoder if case.architecture.kind in ("seq2seq", "speech") else _decode
    return made(case, model, length, generator)


def _inputs(case: Case, length: int, generator: torch.Generator) -> dict[str, Any]:
    """Arguments of a forward pass over whole sequences."""
    kind, batch = case.architecture.kind, case.batch
    if kind == "vision":
        return {"pixel_values": torch.randn(batch, 3, 16, 16, generator=generator)}
    if kind == "speech":
        return {
            "input_features": torch.randn(batch, 8, 32, generator=generator),
            "decoder_input_ids": _tokens(generator, batch, length),
        }
    inputs: dict[str, Any] = {"input_ids": _tokens(generator, batch, length)}
    if batch > 1 and kind != "state-space":
        inputs["attention_mask"] = _mask(batch, length)
    if kind == "seq2seq":
        inputs["decoder_input_ids"] = _tokens(generator, batch, length - 3)
    return inputs


def _forward(case: Case, length: int, generator: torch.Generator) -> Step:
    more = {} if case.architecture.kind in ("encoder", "vision") else {"use_cache": False}
    return lambda model: model(**_inputs(case, length, generator), **more)


def _new_cache(case: Case, model: Any) -> Any:
    config = model.config.get_text_config(decoder=True)
    return StaticCache(config, CACHE_LENGTH) if "static" in case.step else DynamicCache(config=config)


def _decode(case: Case, model: Any, length: int, generator: torch.Generator) -> Step:
    cache = _new_cache(case, model)
    position = length
    padded = case.batch > 1 and case.architecture.kind != "state-space"

    def arguments(width: int) -> dict[str, Any]:
        made: dict[str, Any] = {"input_ids": _tokens(generator, case.batch, width), "cache": cache, "use_cache": True}
        if padded:
            made["attention_mask"] = _mask(case.batch, position)
        return made

    with torch.no_grad():
        model(**arguments(length))

    def step(called: Any) -> Any:
        nonlocal position
        position += 1
        return called(**arguments(1))

    return step


def _decode_after_encoder(case: Case, model: Any, length: int, generator: torch.Generator) -> Step:
    inputs = _inputs(case, length, generator)
    inputs.pop("decoder_input_ids")
    with torch.no_grad():
        encoded = model.get_encoder()(**inputs)
    cache = EncoderDecoderCache(_new_cache(case, model), DynamicCache(config=model.config.get_text_config(decoder=True)))
    fixed = {"encoder_outputs": encoded, "cache": cache, "use_cache": True}
    if "attention_mask" in inputs:
        fixed["attention_mask"] = inputs["attention_mask"]
    with torch.no_grad():
        model(decoder_input_ids=_tokens(generator, case.batch, 3), **fixed)
    return lambda called: called(decoder_input_ids=_tokens(generator, case.batch, 1), **fixed)


NEW_TOKENS = 8


def generation(
    case: Case, length: int, generator: torch.Generator, tokens: int = NEW_TOKENS, device: torch.device | str = "cpu"
) -> Step:
    """A whole `generate` of so many new tokens, the same one each time."""
    inputs = {name: made.to(device) for name, made in _inputs(case, length, generator).items()}
    inputs.pop("decoder_input_ids", None)
    how: dict[str, Any] = {
        "max_new_tokens": tokens,
        "min_new_tokens": tokens,
        "do_sample": "sampled" in case.step,
        "return_dict_in_generate": True,
        "output_logits": True,
    }
    if "sampled" in case.step:
        how |= {"top_k": 20, "temperature": 0.7}
    if "static" in case.step:
        how["cache_implementation"] = "static"

    def step(model: Any) -> Any:
        torch.manual_seed(3)
        return model.generate(**inputs, **how)

    return step
