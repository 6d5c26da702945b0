"""Checkpoints made on the spot: config, tokenizer and seeded random weights in safetensors, by the standard library."""
import json
import random
import shutil
import struct

# Head sizes and groups that the tensor-core kernels take.
TINY = [
    {"name": "llama-64", "hidden": 256, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 64, "ffn": 512},
    {"name": "llama-128", "hidden": 256, "layers": 2, "heads": 8, "kv_heads": 1, "head_dim": 128, "ffn": 384},
    {"name": "llama-80", "hidden": 320, "layers": 2, "heads": 4, "kv_heads": 4, "head_dim": 80, "ffn": 512},
]
VOCAB = 272  # of the test checkpoints' tokenizer

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False,
    "hidden_act": "silu", "attention_bias": False, "torch_dtype": "bfloat16", "bos_token_id": 128000, "eos_token_id": 128001,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192},
}


def config_of(shape):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": shape["hidden"],
            "intermediate_size": shape["ffn"], "num_hidden_layers": shape["layers"], "num_attention_heads": shape["heads"],
            "num_key_value_heads": shape["kv_heads"], "head_dim": shape["head_dim"], "vocab_size": VOCAB,
            "max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
            "hidden_act": "silu", "attention_bias": False, "torch_dtype": "bfloat16", "bos_token_id": 268, "eos_token_id": 269}


def bf16_noise(n, rng, exponents):
    """n random bf16 values: any mantissa, either sign, the sizes that the high bytes give."""
    table = bytes(exponents[i % len(exponents)] | (0x80 if i & 1 else 0) for i in range(256))
    data = bytearray(2 * n)
    data[0::2] = rng.randbytes(n)
    data[1::2] = bytes(rng.randbytes(n)).translate(table)
    return bytes(data)


def make(folder, root, shape, small=False):
    """The checkpoint's directory; made once."""
    target = folder / shape["name"]
    if target.exists():
        return target
    if small:
        shape = {**shape, "layers": 1, "ffn": 64, "hidden": 64, "heads": 2, "kv_heads": 1, "head_dim": 64}
    target.mkdir()
    config = config_of(shape)
    (target / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(root / "tests" / "data" / "models" / "llama" / name, target / name)
    hidden, ffn, dim = shape["hidden"], shape["ffn"], shape["head_dim"]
    tensors = {"model.embed_tokens.weight": (VOCAB, hidden), "lm_head.weight": (VOCAB, hidden), "model.norm.weight": (hidden,)}
    for layer in range(shape["layers"]):
        at = f"model.layers.{layer}."
        tensors |= {at + "input_layernorm.weight": (hidden,), at + "post_attention_layernorm.weight": (hidden,),
                    at + "self_attn.q_proj.weight": (shape["heads"] * dim, hidden),
                    at + "self_attn.k_proj.weight": (shape["kv_heads"] * dim, hidden),
                    at + "self_attn.v_proj.weight": (shape["kv_heads"] * dim, hidden),
                    at + "self_attn.o_proj.weight": (hidden, shape["heads"] * dim),
                    at + "mlp.gate_proj.weight": (ffn, hidden), at + "mlp.up_proj.weight": (ffn, hidden),
                    at + "mlp.down_proj.weight": (hidden, ffn)}
    rng = random.Random(shape["name"])
    header, data = {}, []
    offset = 0
    for name, size in tensors.items():
        n = size[0] * (size[1] if len(size) > 1 else 1)
        # High bytes 3d: 0.03 to 0.12; 3e: 0.125 to 0.5. The head's are large, so that near ties are rare.
        values = b"\x80\x3f" * n if len(size) == 1 else bf16_noise(n, rng, [0x3d, 0x3d, 0x3c, 0x3e] if "head" not in name
                                                                   else [0x3e, 0x3f])
        header[name] = {"dtype": "BF16", "shape": list(size), "data_offsets": [offset, offset + 2 * n]}
        data.append(values)
        offset += 2 * n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (target / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))
    return target


def prompts(n, longest):
    """n ragged lists of ordinary ids; one of them as long as asked."""
    rng = random.Random(n)
    lengths = [longest if i == n // 2 else 1 + rng.randrange(longest) for i in range(n)]
    return [[rng.randrange(1, 256) for _ in range(length)] for length in lengths]
