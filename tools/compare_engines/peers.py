"""The peers, each in a process of its own: reads one JSON request a line, answers with one JSON line.

    python peers.py llama.cpp|transformers|vllm MODEL --threads N [--dtype bf16|f32] [--device cpu|cuda] [--once]

--once: loads, answers 8 tokens to a short prompt, ends (a whole run, as a user feels it).

{"op": "generate", "prompts": [[ids] ...], "new": N}: greedy, EOS not heeded, all prompts of one length and
computed together. Answer: {"ids": [[N ids] ...], "times": [seconds from the start to the N-th token of all]}.
{"op": "margins", "prompt": [ids], "ids": [ids]} (transformers): for each of `ids`, how far its logit lies
below the largest, everything before it given.

To be fair to the peers: their decode loop is written out here on their lowest public level, so that neither
pays for sampling chains, streamers or detokenizing; only the last position's logits are computed; buffers are
of the size that their own benchmark tools use.
"""

import argparse
import json
import os
import sys
import time


class LlamaCpp:
    def __init__(self, path, threads, dtype, device):
        import llama_cpp as lib

        self.lib, self.threads = lib, threads
        if device == "cuda" and not lib.llama_supports_gpu_offload():
            raise SystemExit("this llama-cpp-python was built without CUDA: CMAKE_ARGS=-DGGML_CUDA=ON pip install ...")
        self.quiet = lib.llama_log_callback(lambda *_: None)  # kept: the library calls it as long as it lives
        lib.llama_log_set(self.quiet, None)
        lib.llama_backend_init()
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 999 if device == "cuda" else 0
        self.model = lib.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise SystemExit(f"llama.cpp can't load {path}")
        self.n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.context, self.shape = None, None
        self.about = {
            "version": "llama-cpp-python " + lib.__version__,
            "features": lib.llama_print_system_info().decode().strip(),
        }

    def prepare(self, n_seqs, n_tokens):
        """A context that holds n_seqs × n_tokens; kept while the shape stays the same."""
        lib = self.lib
        if self.shape == (n_seqs, n_tokens):
            lib.llama_memory_clear(lib.llama_get_memory(self.context), True)
            return
        if self.context:
            lib.llama_free(self.context)
        params = lib.llama_context_default_params()
        params.n_ctx = n_seqs * ((n_tokens + 255) // 256 * 256)
        params.n_batch, params.n_ubatch, params.n_seq_max = 2048, 512, n_seqs
        params.n_threads = params.n_threads_batch = self.threads
        params.no_perf = True
        self.context = lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit(f"llama.cpp can't make a context of {n_seqs} × {n_tokens} tokens")
        self.shape = (n_seqs, n_tokens)

    def decode(self, rows):
        """rows: (token, position, sequence, wants logits)."""
        batch = self.lib.llama_batch_init(len(rows), 0, 1)
        try:
            batch.n_tokens = len(rows)
            for i, (token, position, sequence, wants) in enumerate(rows):
                batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
                batch.seq_id[i][0], batch.logits[i] = sequence, wants
            if self.lib.llama_decode(self.context, batch):
                raise SystemExit("llama_decode failed")
        finally:
            self.lib.llama_batch_free(batch)

    def pick(self, output):
        import numpy as np

        row = self.lib.llama_get_logits_ith(self.context, output)  # waits for the computation
        return int(np.ctypeslib.as_array(row, (self.n_vocab,)).argmax())

    def generate(self, prompts, new):
        length = len(prompts[0])
        self.prepare(len(prompts), length + new)
        begin, times, ids = time.perf_counter(), [], [[] for _ in prompts]
        rows = [(t, p, s, p == length - 1) for s, prompt in enumerate(prompts) for p, t in enumerate(prompt)]
        last = []
        for at in range(0, len(rows), 2048):
            part = rows[at : at + 2048]
            self.decode(part)
            last += [self.pick(i) for i, row in enumerate(part) if row[3]]
        for step in range(new):
            if step:
                self.decode([(token, length + step - 1, s, True) for s, token in enumerate(last)])
                last = [self.pick(i) for i in range(len(prompts))]
            times.append(time.perf_counter() - begin)
            for sequence, token in zip(ids, last):
                sequence.append(token)
        return {"ids": ids, "times": times}


class Transformers:
    def __init__(self, path, threads, dtype, device):
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        torch.set_num_threads(threads)
        self.torch, self.device = torch, device
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype={"bf16": torch.bfloat16, "f32": torch.float32}[dtype])
        self.model.eval().to(device)
        self.about = {"version": f"transformers {transformers.__version__}, torch {torch.__version__}",
                      "features": torch.backends.cpu.get_cpu_capability()}

    def generate(self, prompts, new):
        torch = self.torch
        with torch.inference_mode():
            begin, times, steps = time.perf_counter(), [], []
            out = self.model(torch.tensor(prompts, device=self.device), use_cache=True, logits_to_keep=1)
            for step in range(new):
                if step:
                    out = self.model(token[:, None], past_key_values=out.past_key_values, use_cache=True)
                token = out.logits[:, -1].argmax(-1)
                steps.append(token.tolist())  # waits for the computation
                times.append(time.perf_counter() - begin)
        return {"ids": [list(ids) for ids in zip(*steps)], "times": times}

    def margins(self, prompt, ids):
        torch = self.torch
        with torch.inference_mode():
            logits = self.model(torch.tensor([prompt + ids[:-1]], device=self.device), logits_to_keep=len(ids)).logits[0].float()
        chosen = logits[torch.arange(len(ids)), torch.tensor(ids)]
        return {"margins": (logits.max(-1).values - chosen).tolist()}


class Vllm:
    """On a GPU machine that has it. Written against vLLM's engine API (add_request, step)."""

    def __init__(self, path, threads, dtype, device):
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # steps in this process: a token's time is its own
        import vllm

        self.vllm, self.served = vllm, 0
        self.engine = vllm.LLMEngine.from_engine_args(vllm.EngineArgs(
            model=path, dtype={"bf16": "bfloat16", "f32": "float32"}[dtype], max_num_seqs=64, enable_prefix_caching=False))
        self.about = {"version": "vllm " + vllm.__version__, "features": device}

    def generate(self, prompts, new):
        sampling = self.vllm.SamplingParams(temperature=0, max_tokens=new, ignore_eos=True, detokenize=False)
        names = [f"{self.served + i}" for i in range(len(prompts))]
        self.served += len(prompts)
        begin, times, ids = time.perf_counter(), [], dict.fromkeys(names, ())
        for name, prompt in zip(names, prompts):
            self.engine.add_request(name, {"prompt_token_ids": prompt}, sampling)
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                ids[output.request_id] = tuple(output.outputs[0].token_ids)
            while len(times) < min(len(answer) for answer in ids.values()):
                times.append(time.perf_counter() - begin)
        return {"ids": [list(ids[name]) for name in names], "times": times}


ENGINES = {"llama.cpp": LlamaCpp, "transformers": Transformers, "vllm": Vllm}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")  # what libraries print must not land among the answers
    os.dup2(2, 1)
    begin = time.perf_counter()
    peer = ENGINES[options.engine](options.model, options.threads, options.dtype, options.device)
    if options.once:
        peer.generate([[1, 9690, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198]], 8)
        return
    print(json.dumps({"load_s": time.perf_counter() - begin, **peer.about}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(peer, request.pop("op"))(**request)), file=answers, flush=True)


if __name__ == "__main__":
    main()
