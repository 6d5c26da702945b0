"""tools/compare's arithmetic and tables, from given times, without an engine; and the vLLM peer against a stand-in."""

import pathlib
import sys
import types
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools" / "compare_engines"))
import compare
import peers
import report


class Loads(unittest.TestCase):
    # Two prompts of 100 tokens; four new tokens of each, all there after 0.5, 0.6, 0.7 and 1.1 s.
    times = [0.5, 0.6, 0.7, 1.1]

    def value(self, what, times=None):
        return compare.Load("k", "label", what, 2, 100, 4).value(times or self.times)

    def test_rates(self):
        self.assertAlmostEqual(self.value("prefill"), 400)  # 200 prompt tokens in 0.5 s
        self.assertAlmostEqual(self.value("decode"), 10)  # 2 × 3 tokens in 0.6 s: the first ones belong to the prefill

    def test_p99_is_of_the_gaps(self):
        # Gaps of 100, 100 and 400 ms: 0.98 of the way from the second to the third.
        self.assertAlmostEqual(self.value("p99"), 394)
        self.assertAlmostEqual(self.value("p99", [1, 3]), 2000)

    def test_each_figure_stands_beside_its_own_limit(self):
        point = {"floor": {"of_matmul_peak": 0.8, "reached": 0.9}}
        self.assertEqual([compare.Load("k", "l", what, 1, 1, 2).of_floor(point) for what in ("prefill", "decode", "p99")], [0.8, 0.9, None])

    def test_every_load_has_a_row_of_its_own(self):
        keys = [load.key for load in compare.LOADS]
        self.assertEqual(len(set(keys)), len(keys))
        for key in ("prefill_512", "prefill_1500", "decode_512", "decode_1500", "decode_32", "prefill_32", "p99_512", "p99_32"):
            self.assertIn(key, keys)


def example():
    rows = [("decode_512", "decode after 512 tokens", "tok/s", "more"), ("run_s", "whole run of 8 tokens", "s", "less")]
    values = {"decode_512": {"llmgen": [200, 100, 150], "llama.cpp": [100, 100, 100], "vllm": [50, 50, 50]},
              "run_s": {"llmgen": [0.2, 0.2, 0.2], "llama.cpp": [0.4, 0.1, 0.2], "vllm": []}}
    return {"model": "M", "threads": 2, "cpu": "C", "date": "2026-01-02", "rounds": 3, "command": "tools/compare --rounds 3 --threads 2",
            "others_part_of_cpu": 0.02, "figures": report.figures(rows, values, {"decode_512": [0.6, 0.5, 0.9]}),
            "engines": {"llmgen": {"version": "1", "features": "C, AVX2", "read_bytes_per_s": [50e9, 80e9, 60e9], "weight_bytes": 200e6,
                                   "matmul_flop_per_s": [1e12, 1.001e12]},
                        "llama.cpp": {"version": "llama 1"}, "vllm": {"version": "vllm 2"}},
            "ids": {"llmgen": {"answers": 1, "tokens": 8, "equal_leading_tokens": 8, "largest_margin": 0.0, "sound": True}}}


class Report(unittest.TestCase):
    def test_ratios_are_of_the_same_round(self):
        ratio = example()["figures"]["run_s"]["ratios"]["llama.cpp"]
        self.assertEqual(ratio["values"], [0.5, 2.0, 1.0])  # the median of ratios, not the ratio of medians
        self.assertEqual((ratio["median"], ratio["min"], ratio["max"]), (1.0, 0.5, 2.0))

    def test_markdown_is_a_whole_table(self):
        text = report.markdown(example())
        table = [line for line in text.splitlines() if line.startswith("|")]
        self.assertEqual(len(table), 4)
        self.assertEqual(len({line.count("|") for line in table}), 1)
        self.assertIn("| decode after 512 tokens, tok/s | 150 | 100 | 50.0 | 1.50 (1.00–2.00) | 3.00 (2.00–4.00) | 60 % |", table)
        self.assertIn("| whole run of 8 tokens, s (less is better) | 0.20 | 0.20 | – | 1.00 (0.50–2.00) | – | – |", table)
        self.assertIn("`tools/compare --rounds 3 --threads 2`", text)
        self.assertIn("all engines sound", text)
        self.assertIn("200 MB of weights, and keys and values, a step at the read bandwidth, 50.0 to 80.0 GB/s", text)
        self.assertIn("at the matmul peak, 1.00 TFLOP/s.", text)
        self.assertNotIn("not to be quoted", text)

    def test_a_busy_machine_and_a_wrong_engine_are_said(self):
        busy = example() | {"others_part_of_cpu": 0.4}
        busy["ids"]["llmgen"]["sound"] = False
        self.assertIn("other programs took 40 % of the CPUs: not to be quoted", report.markdown(busy))
        self.assertIn("NOT ALL SOUND", report.markdown(busy))
        self.assertIn("WRONG", report.text(busy))
        self.assertNotIn("other programs", report.markdown(busy | {"others_part_of_cpu": None}))

    def test_the_peers_alone_have_no_floor(self):
        alone = example()
        alone["figures"]["decode_512"]["of_floor"] = None
        del alone["engines"]["llmgen"]
        self.assertNotIn("floor", report.markdown(alone))

    def test_plot_names_every_engine(self):
        svg = report.plot(example())
        self.assertEqual(svg.count("<rect"), 1 + 3)  # the rates only
        self.assertIn("vllm", svg)


class Ids(unittest.TestCase):
    class Reference:
        def generate(self, prompts, new):
            return {"ids": [[1, 2, 3]]}

        def ask(self, op, prompt, ids):
            return {"margins": [0.0 if i == 1 else 0.5 if i == 9 else 5.0 for i in ids]}

    def test_near_ties_are_sound_and_far_ids_are_not(self):
        out = compare.check_ids([("near", [7], [1, 9, 9]), ("far", [7], [4, 4, 4])], self.Reference())
        self.assertEqual((out["near"]["equal_leading_tokens"], out["near"]["sound"]), (1, True))
        self.assertEqual((out["far"]["equal_leading_tokens"], out["far"]["sound"]), (0, False))


class Vllm(unittest.TestCase):
    """A stand-in with the engine calls that the peer makes: one token a step for each request."""

    def test_times_are_when_all_have_the_token(self):
        class Engine:
            requests = {}

            def from_engine_args(arguments):
                assert arguments["enable_prefix_caching"] is False and arguments["dtype"] == "bfloat16"
                return Engine()

            def add_request(self, name, prompt, sampling):
                self.requests[name] = (sampling["max_tokens"], prompt["prompt_token_ids"][0], [])

            def has_unfinished_requests(self):
                return any(len(ids) < n for n, _, ids in self.requests.values())

            def step(self):
                for _, first, ids in self.requests.values():
                    ids.append(first + len(ids))
                return [types.SimpleNamespace(request_id=name, outputs=[types.SimpleNamespace(token_ids=list(ids))])
                        for name, (_, _, ids) in self.requests.items()]

        sys.modules["vllm"] = types.SimpleNamespace(__version__="0", LLMEngine=Engine, EngineArgs=dict, SamplingParams=dict)
        answer = peers.Vllm("model", 1, "bf16", "cuda").generate([[10], [20]], 3)
        self.assertEqual(answer["ids"], [[10, 11, 12], [20, 21, 22]])
        self.assertEqual(len(answer["times"]), 3)
        self.assertEqual(answer["times"], sorted(answer["times"]))


unittest.main()
