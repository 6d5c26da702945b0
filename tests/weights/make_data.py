#!/usr/bin/env python3
"""Writes tests/data/weights/rope.json and the seeds of the weights' fuzzers. Needs transformers 5 and torch.

rope.json: small configs of every rope type, in the forms of transformers 4 and 5, with the inverse frequencies and the
factor on cos and sin that transformers computes for a given length (0: as at load)."""

import json
import pathlib
import struct

from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

TESTS = pathlib.Path(__file__).resolve().parent.parent
BASE = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 2048}
PHI = BASE | {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "max_position_embeddings": 8192, "original_max_position_embeddings": 1024,
              "pad_token_id": 0, "eos_token_id": 1}
LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}


def factors(n, low, step):
    return [round(low + step * i, 3) for i in range(n)]


LONG = {"short_factor": factors(32, 1.0, 0.05), "long_factor": factors(32, 1.0, 0.75)}
CASES = {
    "default": (BASE | {"rope_theta": 10000.0}, [0]),
    "default, theta as an integer": (BASE | {"rope_theta": 1000000}, [0]),
    "default, no theta at all": (BASE, [0]),
    "default of 5": (BASE | {"rope_parameters": {"rope_type": "default", "rope_theta": 123456.0}}, [0]),
    "explicit head_dim": (BASE | {"head_dim": 80, "rope_theta": 20000.0}, [0]),
    "linear, early form": (BASE | {"rope_scaling": {"type": "linear", "factor": 2.5}, "rope_theta": 25000.0}, [0]),
    "linear of 5": (BASE | {"rope_parameters": {"rope_type": "linear", "factor": 4, "rope_theta": 10000.0}}, [0]),
    "dynamic": (BASE | {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, [0, 2048, 2049, 3000, 8000]),
    "llama3": (BASE | {"rope_scaling": LLAMA3, "rope_theta": 500000.0, "max_position_embeddings": 131072}, [0]),
    "llama3 of 5, factor 8, head_dim 128": (BASE | {"head_dim": 128, "rope_parameters": LLAMA3 | {"factor": 8.0, "rope_theta": 500000.0}}, [0]),
    "yarn": (BASE | {"rope_scaling": YARN}, [0]),
    "yarn, early form, with its own betas": (BASE | {"rope_scaling": {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 256,
                                                                    "beta_fast": 16, "beta_slow": 2}, "rope_theta": 5000.0}, [0]),
    "yarn, attention_factor": (BASE | {"rope_scaling": YARN | {"attention_factor": 0.75}}, [0]),
    "yarn, mscale": (BASE | {"rope_scaling": YARN | {"mscale": 0.707, "mscale_all_dim": 1.2}}, [0]),
    "yarn, not truncated": (BASE | {"rope_parameters": YARN | {"truncate": False, "rope_theta": 150000.0}}, [0]),
    "longrope": (PHI | {"rope_scaling": LONG | {"type": "longrope"}, "rope_theta": 10000.0}, [0, 1024, 1025, 8192]),
    "longrope, once called su": (PHI | {"rope_scaling": LONG | {"type": "su"}}, [0, 5000]),
    "longrope of 5, part of the head, its own factor": (
        PHI | {"rope_parameters": {"rope_type": "longrope", "short_factor": factors(24, 1.0, 0.1), "long_factor": factors(24, 2.0, 0.5),
                                   "attention_factor": 1.3, "partial_rotary_factor": 0.75, "rope_theta": 10000.0}}, [0, 4000]),
    "part of the head": (PHI | {"partial_rotary_factor": 0.5}, [0]),
}


def reference(config, length):
    """(inverse frequencies, factor) as the model computes them for a sequence of that length."""
    if config.get("rope_scaling", {}).get("type") == "su":  # transformers 4 renamed it; 5 can't
        config["rope_scaling"]["type"] = "longrope"
    loaded = AutoConfig.for_model(**config)
    kind = loaded.rope_parameters["rope_type"]
    if kind == "default":
        embedding = Phi3RotaryEmbedding if config["model_type"] == "phi3" else LlamaRotaryEmbedding
        return embedding.compute_default_rope_parameters(loaded)
    return ROPE_INIT_FUNCTIONS[kind](loaded, "cpu", seq_len=length or None)


def write_rope():
    lines = []
    for name, (config, lengths) in CASES.items():
        for length in lengths:
            inverse, factor = reference(json.loads(json.dumps(config)), length)
            lines.append(json.dumps({"name": name, "config": config, "n_positions": length, "inverse": [float(f"{v:.9g}") for v in inverse.tolist()],
                                     "attention_factor": float(factor)}))
    (TESTS / "data/weights/rope.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def write_seeds():
    corpus = TESTS / "fuzz/corpus"
    for name in ("config_fuzz", "safetensors_fuzz"):
        (corpus / name).mkdir(parents=True, exist_ok=True)
    for index, (config, _) in enumerate(CASES.values()):
        (corpus / f"config_fuzz/{index:02}").write_text(json.dumps(config))
    qwen = BASE | {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1, "eos_token_id": [1, 2, None, -1],
                   "layer_types": ["full_attention", "sliding_attention"], "torch_dtype": "bfloat16", "do_sample": True, "temperature": 0.7,
                   "top_k": 20, "top_p": 0.8, "min_p": 0.1, "repetition_penalty": 1.1, "quantization_config": {"quant_method": "fp8"}}
    (corpus / "config_fuzz/qwen").write_text(json.dumps(qwen))

    def tensor(kind, shape, begin, end, **more):
        return {"dtype": kind, "shape": shape, "data_offsets": [begin, end], **more}

    headers = [
        ({"a": tensor("F32", [1], 0, 4)}, 4),
        ({"__metadata__": {"format": "pt"}, "b": tensor("BF16", [2, 2], 4, 12), "a": tensor("F16", [2], 0, 4)}, 12),
        ({"s": tensor("F32", [], 0, 4), "z": tensor("F32", [0, 3], 4, 4)}, 4),
        ({"q": tensor("F4", [8], 0, 4), "e": tensor("F8_E4M3", [4], 4, 8, extra={"k": [1, {"n": None}]})}, 8),
        ({"gap": tensor("U8", [1], 0, 1), "late": tensor("I64", [1], 2, 10)}, 10),
        ({"big": tensor("F64", [2**32, 2**32], 0, 2**64 - 1)}, 3),
    ]
    for index, (header, n_data) in enumerate(headers):
        text = json.dumps(header).encode()
        (corpus / f"safetensors_fuzz/{index:02}").write_bytes(struct.pack("<Q", len(text)) + text + bytes(n_data))


write_rope()
write_seeds()
