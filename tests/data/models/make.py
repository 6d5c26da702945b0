#!/usr/bin/env python3
"""Makes the small checkpoints beside it, one an architecture, with goldens computed by transformers.

usage: make.py [NAME ...]          needs torch, transformers and safetensors; nothing here is needed to build or run

Each is random and tiny (hidden 32, two layers, tens of KB) but complete: config, tokenizer of bytes and a few
merges, chat template, generation config, weights. golden.json: per prompt the ids, the largest logits after the
last of them, greedy ids in f32, and the mean -ln p of a continuation; the distance of transformers' own bf16 from
f32; and the probabilities after each sampling transform. Seeds are searched until no greedy step is a near tie."""
import json, pathlib, shutil, sys
import torch
import transformers as tf
from safetensors.torch import save_file
from transformers.generation import logits_process as lp

HERE = pathlib.Path(__file__).parent
SPECIAL = ["<|bos|>", "<|eot|>", "<|turn|>", "<|end|>"]
MERGES = [("t", "h"), ("th", "e"), ("i", "n"), ("a", "n"), ("Ġ", "the"), ("e", "r"), ("o", "n"), ("Ġ", "s"),
          ("h", "i"), ("s", "t"), ("Ġ", "a"), ("in", "g")]
TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}<|eot|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}")
PROMPTS = ["the sun is shining on the stone", "a", "in the end, an answer: 1, 2, 3",
           "He said: “the café is shut” and then went on, and on, and on, until the rain began to sing."]
CHATS = [[{"role": "user", "content": "Is the sea near?"}],
         [{"role": "system", "content": "Short answers."}, {"role": "user", "content": "And the stars?"}]]
COMMON = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=268, eos_token_id=[269, 271], pad_token_id=None)
MODELS = {
    "llama": (tf.LlamaConfig, tf.LlamaForCausalLM, dict(tie_word_embeddings=True, rope_parameters={
        "rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32})),
    "llama-bias": (tf.LlamaConfig, tf.LlamaForCausalLM, dict(attention_bias=True, mlp_bias=True, head_dim=16)),
    "qwen2": (tf.Qwen2Config, tf.Qwen2ForCausalLM, dict(tie_word_embeddings=True)),
    "qwen3": (tf.Qwen3Config, tf.Qwen3ForCausalLM, dict(head_dim=16)),
    "mistral": (tf.MistralConfig, tf.MistralForCausalLM, dict(sliding_window=12)),
    "phi3": (tf.Phi3Config, tf.Phi3ForCausalLM, dict(partial_rotary_factor=0.5)),
}


def tokenizer_json():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, extra = {}, 0
    for byte in range(256):
        letters[byte] = chr(byte) if byte in printable else chr(256 + extra)
        extra += byte not in printable
    vocab = {letters[b]: b for b in range(256)}
    for a, b in MERGES:
        vocab[a + b] = len(vocab)
    added = [{"id": len(vocab) + i, "content": s, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, s in enumerate(SPECIAL)]
    bos = {"SpecialToken": {"id": SPECIAL[0], "type_id": 0}}
    a = {"Sequence": {"id": "A", "type_id": 0}}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": {"type": "TemplateProcessing", "single": [bos, a], "pair": [bos, a, bos, {
                "Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {SPECIAL[0]: {
                    "id": SPECIAL[0], "ids": [len(vocab)], "tokens": [SPECIAL[0]]}}},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": vocab, "merges": [f"{a} {b}" for a, b in MERGES]}}


def build(config_class, model_class, changes, seed):
    torch.manual_seed(seed)
    config = config_class(**{**COMMON, **changes}, vocab_size=len(MERGES) + 256 + len(SPECIAL))
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(1 + 0.2 * torch.randn_like(p) if "norm" in name else torch.randn_like(p) *
                    (0.3 if "bias" in name else 1.2 if "embed" in name or "lm_head" in name else 0.35))
        for p in model.parameters():
            p.copy_(p.to(torch.bfloat16).float())
    return model


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float()


def greedy(model, ids, n):
    out, least = [], 1e9
    for _ in range(n):
        last = logits_of(model, ids + out)[-1]
        top = torch.topk(last, 2).values
        least = min(least, float(top[0] - top[1]))
        out.append(int(last.argmax()))
    return out, least


def sampling(model, ids):
    logits = logits_of(model, ids)[-1:]
    history = torch.tensor([ids])
    steps = {"repetition_penalty": (1.2, lp.RepetitionPenaltyLogitsProcessor), "temperature": (0.7, lp.TemperatureLogitsWarper),
             "top_k": (20, lp.TopKLogitsWarper), "top_p": (0.8, lp.TopPLogitsWarper), "min_p": (0.05, lp.MinPLogitsWarper)}
    cases = []
    for names in [[], *[[n] for n in steps], ["temperature", "top_p"], list(steps)]:
        scores = logits.clone()
        for name in names:
            scores = steps[name][1](steps[name][0])(history, scores)
        probs = torch.softmax(scores, -1)[0]
        kept = [i for i in torch.argsort(probs, descending=True).tolist() if probs[i] > 0]
        cases.append({"settings": {n: steps[n][0] for n in names}, "ids": kept, "probs": [float(f"{probs[i]:.9g}") for i in kept]})
    return cases


def make(name):
    config_class, model_class, changes = MODELS[name]
    out = HERE / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    (out / "tokenizer.json").write_text(json.dumps(tokenizer_json(), ensure_ascii=False, indent=0))
    (out / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIAL[0], "eos_token": SPECIAL[1],
        "clean_up_tokenization_spaces": False, "chat_template": TEMPLATE}, indent=1))
    tokenizer = tf.PreTrainedTokenizerFast.from_pretrained(out)
    prompts = [tokenizer(p)["input_ids"] for p in PROMPTS]
    chats = [(c, tokenizer.apply_chat_template(c, add_generation_prompt=True, tokenize=False)) for c in CHATS]
    chat_ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for _, text in chats]
    for seed in range(1, 200):
        model = build(config_class, model_class, changes, seed)
        answers = [greedy(model, ids, 24) for ids in prompts + chat_ids]
        if min(least for _, least in answers) > 5e-3:
            break
    weights = {k: v.to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()
               if not (model.config.tie_word_embeddings and k == "lm_head.weight")}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    model.config.architectures = [model_class.__name__]
    config = {**model.config.to_dict(), "dtype": "bfloat16"}
    for key in ("transformers_version", "_attn_implementation", "_name_or_path"):
        config.pop(key, None)
    (out / "config.json").write_text(json.dumps(config, indent=1))
    (out / "generation_config.json").write_text(json.dumps({"bos_token_id": 268, "eos_token_id": [269, 271]}, indent=1))
    (out / "model.safetensors").chmod(0o644)
    golden = {"seed": seed, "transformers": tf.__version__, "prompts": [], "chat": []}
    rounded = model_class.from_pretrained(out, dtype=torch.bfloat16).eval()  # a cast afterwards would round rope too
    total = positions = 0
    for text, ids, (answer, least) in zip(PROMPTS, prompts, answers):
        logits = logits_of(model, ids)
        p, q = torch.log_softmax(logits.double(), -1), torch.log_softmax(logits_of(rounded, ids).double(), -1)
        total += float((p.exp() * (p - q)).sum())
        positions += len(ids)
        top = torch.topk(logits[-1], 16)
        more = prompts[0][1:9]
        after = torch.log_softmax(logits_of(model, ids + more).double(), -1)
        nll = -sum(float(after[len(ids) - 1 + i, t]) for i, t in enumerate(more)) / len(more)
        golden["prompts"].append({
            "text": text, "ids": ids, "logits_last": {"ids": top.indices.tolist(), "values": [float(f"{v:.9g}") for v in top.values]},
            "greedy_ids_f32": answer, "greedy_min_margin": round(least, 5), "continuation_ids": more, "nll": round(nll, 8)})
    for (messages, text), ids, (answer, _) in zip(chats, chat_ids, answers[len(prompts):]):
        golden["chat"].append({"messages": messages, "rendered": text, "ids": ids, "greedy_ids_f32": answer})
    golden["kl_bf16_mean_all_positions"] = total / positions
    golden["sampling_prompt"] = len(prompts) - 1
    golden["sampling"] = sampling(model, prompts[-1])
    (out / "golden.json").write_text(json.dumps(golden, ensure_ascii=False))
    print(name, "seed", seed, "least margin", min(l for _, l in answers), "KL", golden["kl_bf16_mean_all_positions"])


for wanted in sys.argv[1:] or MODELS:
    make(wanted)
