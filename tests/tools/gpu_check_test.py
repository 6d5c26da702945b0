"""tools/gpu_check's flow on a machine with a card, all of whose programs are played by one script: every step says
something, the report has its tables and plots, and whatever is absent or wrong is told without taking the rest along."""

import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

sys.dont_write_bytecode = True
TOOLS = pathlib.Path(__file__).parents[2] / "tools"
LOADER = importlib.machinery.SourceFileLoader("gpu_check", str(TOOLS / "gpu_check"))
gpu_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", LOADER))
LOADER.exec_module(gpu_check)
run = sys.modules["gpu_check_steps.run"]

ACTOR = r'''#!%s
import json, os, pathlib, signal, subprocess, sys, time
name, args = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
value = lambda flag: args[args.index(flag) + 1]
fault = os.environ.get("ACTOR_FAULT", "")
if name in fault.split(","):
    sys.exit("a fault was asked for")
step = os.environ.get("GPU_CHECK_STEP", "")
if os.environ.get("ACTOR_HANG") in (step, "all"):
    print("[ RUN      ] Some.Test", flush=True)
    subprocess.Popen(["/bin/sleep", "40"], start_new_session=True)  # which holds the output open
    time.sleep(40)
if os.environ.get("ACTOR_CRASH") in (step, "all"):
    print("[ RUN      ] Other.Test", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
if name == "nvidia-smi":
    print("NVIDIA H100 80GB HBM3, 580.1, 9.0, 81559 MiB, 4 MiB, 1980 MHz, 700 W, Enabled, Disabled" if "name" in args[0] else "4")
elif name == "nvcc":
    print("nvcc: release 13.0")
elif name == "compute-sanitizer":
    print("========= ERROR SUMMARY: 0 errors")
elif name == "python":
    if "-c" in args:
        code = args[args.index("-c") + 1]
        if "from_pretrained" in code:
            for _ in json.loads(args[-2]): print(json.dumps(list(range(int(args[-1])))))
    else:
        print(json.dumps({"prompt_tokens": 32, "compiled": False, "ttft_s": 0.03, "tpot_s": 0.02}))
elif name.startswith("hardware_") and name != "hardware_bench":
    print("[  PASSED  ] 7 tests.")
elif name == "hardware_bench":
    row = lambda **r: print(json.dumps({"shape": "", "bytes": 0, "flops": 0, "seconds": 1e-3, **r}))
    row(name="read", bytes=3.09e9, card="an H100")
    row(name="cublas_peak", flops=7e11)
    row(name="gemv_qkv", shape="6144 x 4096, 1 row", bytes=2.4e9)
    row(name="attn_prefill", shape="2048 tokens", flops=4e11)
elif args[0] == "devices":
    print(json.dumps({"devices": [{"name": "cpu", "usable": True},
        {"name": "cuda:0", "usable": "card" not in fault, "description": "NVIDIA H100", "problem": "the driver is too old"}]}))
elif args[0] == "batch":
    n = int(value("--max-new-tokens"))
    lines = pathlib.Path(args[1]).read_text().splitlines()
    wrong = "ids" in fault and value("--device") == "cuda" and not ("graphs" in fault and "LLMGEN_OVERLAP" in os.environ)
    ids = [7 if wrong and i == n - 1 else i for i in range(n)]
    pathlib.Path(value("-o")).write_text("".join(json.dumps({"output": {"token_ids": ids}}) + "\n" for _ in lines))
elif args[0] == "bench":
    points = [{"prompt_tokens": int(p), "new_tokens": int(value("--new-tokens")), "concurrency": int(c), "metrics": {
        "ttft_s": {"median": 1e-4 * int(p)}, "tpot_s": {"median": 6e-3}, "output_tokens_per_s": 150.0}}
        for p in value("--prompt-tokens").split(",") for c in value("--concurrency").split(",")]
    print(json.dumps({"load": {"seconds": 1}, "points": points}))
else:
    n = int(value("--max-new-tokens"))
    held = bytearray(n * 10000 if "leak" in fault else 1)
    time.sleep(0.2)
    print(json.dumps({"output": {"token_ids": [1] * n}}))
''' % sys.executable

PROGRAMS = {"toolkit/bin": ["nvidia-smi", "nvcc", "compute-sanitizer", "python"], "build/src/app": ["llmgen"],
            "build/tests/simt/hardware": ["hardware_kernels_test", "hardware_ops_test", "hardware_models_test", "hardware_bench"]}


# Of a check's time most goes into the ids and the soak.
FAST = [step[0] for step in gpu_check.STEPS if step[0] not in ("greedy", "soak", "transformers")]


class GpuCheck(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)
        for folder, names in PROGRAMS.items():
            (self.place / folder).mkdir(parents=True)
            for name in names:
                (self.place / folder / name).write_text(ACTOR)
                (self.place / folder / name).chmod(0o755)

    def check(self, *args, without=(), fault="", **more):
        """The exit code, the JSON, the text and the page of a run; steps by name."""
        for name in without:
            next(self.place.rglob(name)).unlink()
        toolkit = self.place / "toolkit"
        environment = {"CUDA_PATH": str(toolkit), "PATH": str(self.place / "nothing"), "ACTOR_FAULT": fault, **more}
        argv = ["gpu_check", "--build", str(self.place / "build"), "--out", str(self.place / "out"), *args]
        with unittest.mock.patch.dict(os.environ, environment, clear=True), unittest.mock.patch.object(sys, "argv", argv), \
                unittest.mock.patch.object(run, "TOOLKITS", ()), contextlib.redirect_stdout(io.StringIO()), \
                unittest.mock.patch.object(run.Check, "python", lambda _: str(toolkit / "bin" / "python")):
            code = gpu_check.main()
        out = self.place / "out"
        result = json.loads((out / "gpu_check.json").read_text())
        self.assertEqual(result["exit_code"], code)
        self.steps = {step["name"]: step for step in result["steps"]}
        return code, result, (out / "gpu_check.txt").read_text(), (out / "gpu_check.html").read_text()

    def outcomes(self, wanted):
        return [name for name, step in self.steps.items() if step["outcome"] == wanted]

    def test_a_machine_with_everything(self):
        code, result, text, page = self.check()
        self.assertEqual((code, self.outcomes("passed")), (0, [step[0] for step in gpu_check.STEPS]), text)
        for step in result["steps"]:
            self.assertTrue(step["lines"] and all(step["lines"]), step["name"])
            self.assertIn(f"passed   {step['name']} (", text)
        self.assertIn("3090 GB/s read, 700 TFLOP/s", text)
        self.assertIn("the lowest share: attn_prefill 2048 tokens, 57 % of cuBLAS peak", text)
        self.assertIn("prompt 32768, batch 1: TTFT 3277 ms", text)
        self.assertEqual([row["prompt_tokens"] for row in result["latency"] + result["long_prompts"]], [1, 32, 512, 2048, 8192, 32768])
        self.assertTrue(result["complete"])
        self.assertNotIn("UNFINISHED", text)
        # 15.0 GB of weights in bf16 at 3.09 TB/s are 4.86 ms, of which 6 ms are 81 %.
        self.assertAlmostEqual(result["latency"][0]["tpot_floor_s"], 4.86e-3, delta=2e-5)
        self.assertAlmostEqual(result["latency"][0]["tpot_share"], 0.81, delta=0.005)
        self.assertEqual(result["soak"]["tokens"], 10000)
        self.assertEqual([row["batch"] for row in result["batches"]], [1, 8, 32, 128])
        for plot in ("Time per output token by context", "Time to first token by prompt", "Output tokens a second by batch",
                     "transformers, time per output token", "Share of the measured limit"):
            self.assertEqual(len(re.findall(rf"<svg [^>]*aria-label='{plot}[^>]*>.*?<rect ", page, re.S)), 1, plot)
        self.assertNotIn("nan", page.lower())

    def test_whatever_is_absent_is_said_and_the_rest_goes_on(self):
        for absent, concerned, word in (("compute-sanitizer", ["memcheck", "racecheck", "synccheck"], "no compute-sanitizer"),
                                        ("nvcc", ["machine"], "no nvcc"),
                                        ("hardware_bench", ["card"], "hardware_bench is not in"),
                                        ("hardware_ops_test", ["ops"], "hardware_ops_test is not in")):
            with self.subTest(absent):
                self.setUp()
                code, _, text, page = self.check("--only", ",".join(FAST), without=[absent])
                self.assertEqual((code, self.outcomes("missing")), (0, concerned), text)
                self.assertEqual(len(self.outcomes("passed")), len(FAST) - len(concerned), text)
                for name in concerned:
                    self.assertIn(word, self.steps[name]["lines"][-1])
                self.assertIn("class='missing'", page)

    def test_transformers_that_take_too_long_leave_what_they_measured(self):
        python = self.place / "toolkit/bin/python"
        python.write_text(python.read_text().replace('"tpot_s": 0.02}))', '"tpot_s": 0.02}), flush=True); time.sleep(40)'))
        steps = [(name, step, 1 if name == "transformers pace" else limit) for name, step, limit in gpu_check.STEPS]
        with unittest.mock.patch.object(gpu_check, "STEPS", steps):
            code, result, text, _ = self.check("--only", "transformers pace")
        self.assertEqual((code, len(result["transformers"])), (0, 1), text)
        self.assertIn("the others are missing: python ran past 1 s", text)

    def test_without_transformers(self):
        code, result, text, _ = self.check("--only", "card,transformers,transformers pace", fault="python")
        self.assertEqual((code, self.outcomes("missing")), (0, ["transformers", "transformers pace"]), text)
        self.assertNotIn("transformers", result)

    def test_without_a_card_nothing_is_claimed(self):
        code, result, text, _ = self.check(fault="card")
        self.assertEqual((code, result["no_gpu"]), (3, "the driver is too old"))
        self.assertEqual(self.outcomes("passed"), ["machine", "build"], text)
        self.assertEqual(len(self.outcomes("skipped")), len(gpu_check.STEPS) - 3)

    def test_wrong_ids_and_a_broken_program_fail(self):
        code, _, text, page = self.check("--only", "greedy,card,racecheck,transformers", fault="ids,compute-sanitizer")
        self.assertEqual(code, 1)
        self.assertEqual(self.outcomes("FAILED"), ["greedy", "racecheck", "transformers"], text)
        self.assertEqual(self.outcomes("passed"), ["card"])
        self.assertIn("f32, 1 rows: ids differ from the CPU's after 31 of 32", text)
        self.assertIn("class='FAILED'", page)
        # Are recordings or overlapping launches to blame? What works without them is measured without them.
        self.assertIn("31 agree with LLMGEN_RECORD=0", text)
        self.assertIn("31 agree with LLMGEN_SYNC=1, each operation waited for", text)
        code, _, text, _ = self.check("--only", "greedy,transformers", fault="ids,graphs")
        self.assertIn("after 31 of 32; 31 agree with LLMGEN_RECORD=0, without recordings; 32 agree with LLMGEN_OVERLAP=0, without "
                      "overlapping launches, which later steps go without", text)
        self.assertEqual((self.outcomes("FAILED"), self.outcomes("passed")), (["greedy"], ["transformers"]), text)

    def test_an_answer_that_takes_more_memory_the_longer_it_is(self):
        code, result, text, _ = self.check("--only", "soak", fault="leak")
        self.assertEqual((code, self.outcomes("FAILED")), (1, ["soak"]), text)
        self.assertGreater(result["soak"]["host_grown"], 64 << 20)

    def test_a_program_that_hangs_or_crashes_takes_only_its_step(self):
        # A step without a program: the build that is taken as it is.
        concerned = [step[0] for step in gpu_check.STEPS if step[0] not in ("build", "transformers", "transformers pace")]
        short = [(name, step, 0.2) for name, step, _ in gpu_check.STEPS]
        few = ("machine", "devices", "kernels", "greedy", "card", "latency", "racecheck", "soak")  # a hang takes a second
        for how in ("ACTOR_CRASH", "ACTOR_HANG"):
            for victim in concerned if how == "ACTOR_CRASH" else few:
                with self.subTest(how=how, victim=victim), unittest.mock.patch.object(
                        gpu_check, "STEPS", [step if step[0] == victim else full for step, full in zip(short, gpu_check.STEPS)]):
                    begin = time.monotonic()
                    code, result, text, _ = self.check("--only", f"{victim},card,synccheck", **{how: victim})
                    self.assertLess(time.monotonic() - begin, 12)
                    slow = how == "ACTOR_HANG" and victim == "racecheck"  # which found nothing: that isn't wrong
                    self.assertEqual(self.outcomes("missing" if slow else "FAILED"), [victim], text)
                    line = self.steps[victim]["lines"][-1]
                    self.assertRegex(line, "ended by SIGSEGV" if how == "ACTOR_CRASH" else "ran past")
                    if victim in ("maps", "kernels", "ops", "models"):
                        self.assertIn("Other.Test after 0 tests" if how == "ACTOR_CRASH" else "Some.Test after 0 tests", line)
                    rest = [step for step in ("card", "synccheck") if step != victim]
                    # Without an answer of the card nothing more is asked of it.
                    self.assertEqual(self.outcomes("skipped" if victim == "devices" else "passed"), rest, text)
                    self.assertEqual(code, 0 if slow else 1)

    def play_by_python(self):
        """Programs that ldd and strip can look at."""
        for path in ("src/app/llmgen", *("tests/simt/hardware/" + name for name in PROGRAMS["build/tests/simt/hardware"])):
            shutil.copy(os.path.realpath(sys.executable), self.place / "build" / path)

    def test_an_archive_is_one_file_that_a_check_takes_as_its_build(self):
        self.play_by_python()
        to = self.place / "carried" / "pack.tar.xz"
        argv = ["gpu_check", "--build", str(self.place / "build"), "--pack", str(to)]
        with unittest.mock.patch.object(sys, "argv", argv), contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(gpu_check.main(), 0)
        self.assertEqual(os.listdir(to.parent), ["pack.tar.xz"])
        check = run.Check(self.place, argparse.Namespace(dry=False, build=to, seconds=9))
        self.assertEqual(sorted(os.listdir(check.build_dir)), sorted(["lib", "llmgen", *PROGRAMS["build/tests/simt/hardware"]]))
        check.entry = {"name": "devices", "lines": []}
        check.limit_at = time.monotonic() + 9
        self.assertIn("Python 3", check.must([check.llmgen(), "--version"]).stdout)
        check.close()
        self.assertFalse(check.build_dir.exists())

    def test_a_pack_without_a_build_makes_one(self):
        asked = []
        with unittest.mock.patch.object(sys, "argv", ["gpu_check", "--pack", str(self.place / "p.tar.gz")]), \
                unittest.mock.patch.object(subprocess, "run", lambda c, **_: asked.append(c) or argparse.Namespace(returncode=1)):
            self.assertEqual(gpu_check.main(), 1)
        self.assertIn("-DLLMGEN_CUDA_ARCHITECTURES=90a", asked[0])
        self.assertEqual(len(asked), 1)

    def test_packed_programs_bring_their_libraries(self):
        self.play_by_python()
        to = self.place / "packed"
        said = io.StringIO()
        with unittest.mock.patch.object(sys, "argv", ["gpu_check", "--build", str(self.place / "build"), "--pack", str(to)]), \
                contextlib.redirect_stdout(said):
            self.assertEqual(gpu_check.main(), 0)
        self.assertRegex(said.getvalue(), r"gpu_check: \d+ MiB in .*packed")
        libraries = [file.name for file in (to / "lib").iterdir()]
        self.assertEqual([name for name in libraries if name.startswith(("libc.", "libm.", "ld-linux", "libstdc++"))], [])
        # There they are found flat, and run with what lies in lib.
        for name in ("llmgen", *PROGRAMS["build/tests/simt/hardware"]):
            self.assertTrue((to / name).stat().st_mode & 0o100)
            (to / name).write_text(ACTOR)
        (self.place / "nvidia/cu13/lib").mkdir(parents=True)
        (self.place / "nvidia/cu13/lib/libcublasLt.so.13").touch()
        with unittest.mock.patch.object(run.sysconfig, "get_path", lambda _: str(self.place)):
            code, _, text, _ = self.check("--build", str(to), "--only", "devices,card", LD_LIBRARY_PATH="/mine")
            self.assertEqual((code, self.outcomes("passed")), (0, ["devices", "card"]), text)
            check = run.Check(self.place, argparse.Namespace(dry=False, build=to, seconds=9))
            check.entry = {"name": "card"}
            with unittest.mock.patch.dict(os.environ, {"LD_LIBRARY_PATH": "/mine"}):
                self.assertEqual(check.environment(["python"]), {"GPU_CHECK_STEP": "card"})
                self.assertEqual(check.environment([to / "hardware_bench"]), {
                    "GPU_CHECK_STEP": "card", "LLMGEN_TEST_DATA": str(self.place / "tests/data"), "LD_LIBRARY_PATH": ":".join(
                        [str(to / "lib"), "/mine", str(self.place / "nvidia/cu13/lib")])})
            check.close()
        (self.place / "build/tests/simt/hardware/hardware_bench").unlink()
        with unittest.mock.patch.object(sys, "argv", ["gpu_check", "--build", str(self.place / "build"), "--pack", str(to)]), \
                contextlib.redirect_stdout(said):
            self.assertEqual(gpu_check.main(), 1)
        self.assertIn("hardware_bench is not in", said.getvalue())

    def test_what_was_measured_before_a_crash_stands(self):
        bench = self.place / "build/tests/simt/hardware/hardware_bench"
        bench.write_text(bench.read_text().replace('    row(name="attn_prefill"', '    sys.stdout.flush(); os.abort()\n    row(name="attn_prefill"'))
        code, result, text, page = self.check("--only", "card,latency")
        self.assertEqual((code, self.outcomes("FAILED"), self.outcomes("passed")), (1, ["card"], ["latency"]), text)
        self.assertIn("ended by SIGABRT", text)
        self.assertIn("3090 GB/s read, 700 TFLOP/s", text)
        self.assertEqual([row["name"] for row in result["kernels"]], ["cublas_peak", "gemv_qkv"])
        self.assertGreater(result["latency"][0]["tpot_share"], 0.8)
        self.assertIn("gemv_qkv", page)

    def ended_in(self, step, how):
        """The report that is left of a run that ends in a step, and how long it took to end."""
        toolkit = self.place / "toolkit"
        with subprocess.Popen([sys.executable, "-B", str(TOOLS / "gpu_check"), "--build", str(self.place / "build"), "--out",
                               str(self.place / "out"), "--only", "maps,card,kernels,batches"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, env={"CUDA_PATH": str(toolkit), "PATH": "/nothing",
                                                                         "ACTOR_HANG": step}) as process:
            for _ in range(2):
                process.stdout.readline()  # maps, card
            time.sleep(0.3)
            begin = time.monotonic()
            process.send_signal(how)
            process.stdout.read()
        took = time.monotonic() - begin
        out = self.place / "out"
        return json.loads((out / "gpu_check.json").read_text()), (out / "gpu_check.txt").read_text(), process.returncode, took

    def test_whoever_ends_it_finds_the_report(self):
        for how, code in ((signal.SIGTERM, 143), (signal.SIGKILL, -9)):
            result, text, ended, took = self.ended_in("kernels", how)
            self.assertLess(took, 10)
            self.assertEqual(ended, code)
            self.assertEqual([(step["name"], step["outcome"]) for step in result["steps"]],
                             [("maps", "passed"), ("card", "passed"), ("kernels", "unfinished")])
            self.assertEqual(len(result["kernels"]), 3)
            self.assertIn("UNFINISHED: ended in the step kernels", text)

    def test_what_matters_most_is_within_the_ten_minutes_whatever_the_steps_take(self):
        names = [step[0] for step in gpu_check.STEPS]
        before = gpu_check.STEPS[:names.index("latency") + 1]
        self.assertLessEqual(sum(step[2] for step in before), 600)
        self.assertLess(names.index("greedy"), names.index("card"))

    def test_only_some_steps_and_no_time(self):
        self.check("--only", "maps,card")
        self.assertEqual(list(self.steps), ["maps", "card"])
        self.check("--seconds", "1")
        self.assertEqual(len(self.outcomes("skipped")), len(gpu_check.STEPS))


unittest.main()
