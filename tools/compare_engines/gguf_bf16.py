"""A Hugging Face checkpoint (LlamaForCausalLM or Qwen2ForCausalLM shape) to a GGUF file in its own bf16.

    python gguf_bf16.py CHECKPOINT_DIR OUT.gguf

Matrices are copied bit for bit; norms and biases become f32, as llama.cpp wants them. Traps:
  - llama.cpp rotates pairs (2d, 2d + 1) for arch "llama", so the rows of q and k are permuted per head; for
    "qwen2" it rotates (d, d + head_dim / 2) and they stay as they are.
  - A tied output projection isn't stored: llama.cpp falls back to the embedding by itself.
"""

import json
import pathlib
import sys

import gguf
import numpy as np

NAMES = {
    "input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2"}
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


def read_safetensors(directory):
    """Yields (name, dtype, shape, bytes as a flat uint8 array) of every tensor, shard by shard."""
    for path in sorted(directory.glob("*.safetensors")):
        raw = np.memmap(path, np.uint8, "r")
        size = int(raw[:8].view("<u8")[0])
        header = json.loads(raw[8 : 8 + size].tobytes())
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                yield name, entry["dtype"], entry["shape"], raw[8 + size + begin : 8 + size + end]


def their_name(name):
    if name in TOP:
        return TOP[name]
    _, _, layer, rest = name.split(".", 3)
    stem, _, kind = rest.rpartition(".")
    return f"blk.{layer}." + (NAMES[rest] if rest in NAMES else f"{NAMES[stem]}.{kind}")


def permute(rows, n_heads):
    """Rows of each head from pairs (d, d + head_dim / 2) to pairs (2d, 2d + 1)."""
    n_rows = rows.shape[0]
    return rows.reshape(n_heads, 2, n_rows // n_heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def add_vocabulary(writer, directory, config):
    body = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
    size = config["vocab_size"]
    tokens, kinds = [f"[PAD{i}]" for i in range(size)], [gguf.TokenType.UNUSED] * size
    for token, i in body["model"]["vocab"].items():
        tokens[i], kinds[i] = token, NORMAL
    for token in body["added_tokens"]:
        tokens[token["id"]], kinds[token["id"]] = token["content"], CONTROL if token["special"] else USER_DEFINED
    merges = [m if isinstance(m, str) else " ".join(m) for m in body["model"]["merges"]]
    text = json.dumps(body["pre_tokenizer"])
    pre = "smollm" if '"Digits"' in text else "llama-bpe" if "{1,3}" in text else "qwen2"
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    eos = config.get("eos_token_id")
    writer.add_eos_token_id(eos[0] if isinstance(eos, list) else eos)
    if config.get("bos_token_id") is not None:
        writer.add_bos_token_id(config["bos_token_id"])
    writer.add_add_bos_token(False)


def convert(directory, out):
    directory, out = pathlib.Path(directory), pathlib.Path(out)
    config = json.loads((directory / "config.json").read_text())
    arch = ARCHITECTURES.get(config["architectures"][0])
    if arch is None or config.get("rope_scaling"):
        raise SystemExit(f"{directory}: only plain {', '.join(ARCHITECTURES)} are converted here")
    heads, kv_heads = config["num_attention_heads"], config.get("num_key_value_heads", config["num_attention_heads"])
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    temporary = out.with_suffix(".part")
    writer = gguf.GGUFWriter(temporary, arch)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config.get("rope_theta", 10000.0))
    writer.add_rope_dimension_count(head_dim)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    add_vocabulary(writer, directory, config)
    for name, dtype, shape, raw in read_safetensors(directory):
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        if dtype != "BF16":
            raise SystemExit(f"{name}: {dtype}, expected BF16")
        bits = np.array(raw).view("<u2").reshape(shape)
        if arch == "llama" and (".q_proj." in name or ".k_proj." in name):
            bits = permute(bits, heads if ".q_proj." in name else kv_heads)
        if len(shape) == 1:
            writer.add_tensor(their_name(name), (bits.astype("<u4") << 16).view("<f4"))
        else:
            writer.add_tensor(their_name(name), np.ascontiguousarray(bits).view(np.uint8).reshape(*shape[:-1], shape[-1] * 2),
                              raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    temporary.rename(out)


if __name__ == "__main__":
    convert(*sys.argv[1:])
