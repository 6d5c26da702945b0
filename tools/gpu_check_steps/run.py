"""What the steps share: commands with a limit, outcomes, where things lie."""
import glob
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import traceback


TOOLKITS = ("/usr/local/cuda", "/usr/local/nvidia")  # where programs lie that are on nobody's PATH
PLACES = ("src/app", "tests", "tests/simt", "tests/simt/hardware", "")  # of programs in a build; flat where packed


class Missing(Exception):
    """A piece that the step needs isn't there: it is told and the rest goes on."""


class Wrong(Exception):
    """What the step was to show isn't so."""


GRACE = 5  # seconds that a killed program has to go: one that waits for a card's driver may never


def how_it_ended(code):
    if code >= 0:
        return f"exit code {code}"
    return f"ended by {signal.Signals(-code).name}" if -code in list(signal.Signals) else f"ended by signal {-code}"


class Check:
    def __init__(self, root, options, save=lambda result: None):
        self.root, self.options, self.dry, self.save = root, options, options.dry, save
        self.complete = False
        self.output = ""  # of the last program, all that it printed before it ended or was ended
        self.build_dir = (options.build or root / "build" / "gpu_check").resolve()
        self.start = time.monotonic()
        self.steps = []
        self.facts = {}  # what later steps and the report read
        self.no_gpu = ""  # why there is none
        self.left_out = {}  # variables of the environment by which programs do without what was found broken
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="gpu_check_"))
        self.limit_at = 0.0
        if self.build_dir.is_file():  # as --pack made it
            packed, self.build_dir = self.build_dir, (self.scratch / "build").resolve()
            with tarfile.open(packed) as archive:
                archive.extractall(self.build_dir)

    # --- steps

    def left(self):
        return self.options.seconds - (time.monotonic() - self.start)

    def step(self, name, function, limit):
        begin = time.monotonic()
        entry = self.entry = {"name": name, "outcome": "unfinished", "lines": [], "seconds": 0}
        self.steps.append(entry)
        if self.left() < 5:
            entry.update(outcome="skipped", lines=["no time left"])
        elif self.no_gpu and name not in ("machine", "build", "devices"):
            entry.update(outcome="skipped", lines=["no GPU was reached"])
        else:
            self.limit_at = begin + min(limit, self.left())
            self.save(self.result())
            try:
                function(self)
                entry["outcome"] = "passed"
            except Missing as missing:
                entry["outcome"] = "missing"
                self.say(str(missing))
            except Wrong as wrong:
                entry["outcome"] = "FAILED"
                self.say(str(wrong))
            except Exception:  # a fault of this script must not take the other steps with it
                entry["outcome"] = "FAILED"
                self.say("gpu_check itself: " + traceback.format_exc().strip().splitlines()[-1])
        entry["seconds"] = round(time.monotonic() - begin, 2)
        self.save(self.result())
        print(f"{entry['outcome']:8} {name} ({entry['seconds']} s)", *entry["lines"][-1:], flush=True)

    def say(self, line):
        self.entry["lines"].append(line)

    def result(self):
        outcomes = [step["outcome"] for step in self.steps]
        exit_code = 1 if "FAILED" in outcomes else 3 if self.no_gpu else 0
        return {"dry": self.dry, "seconds": round(time.monotonic() - self.start, 1), "complete": self.complete,
                "exit_code": exit_code, "no_gpu": self.no_gpu, "steps": self.steps, **self.facts}

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)

    # --- commands

    def run(self, command, stdin=None, env=None, seconds=None):
        """The finished command with stdout and stderr as text; Wrong where it runs past its limit."""
        limit = max(1.0, self.limit_at - time.monotonic())
        limit = min(limit, seconds) if seconds else limit
        command = [str(part) for part in command]
        # Into files: what was printed is there however the program ends, and nobody who holds a pipe is waited for.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(command, stdin=subprocess.PIPE if stdin else subprocess.DEVNULL, stdout=out, stderr=err,
                                       start_new_session=True, env={**os.environ, **self.environment(command), **(env or {})})
            late = ""
            try:
                process.communicate(stdin.encode() if stdin else None, timeout=limit)
            except subprocess.TimeoutExpired:
                late = f"{pathlib.Path(command[0]).name} ran past {limit:.0f} s: {' '.join(command[:6])[:160]}"
            finally:
                late += self.end(process)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        self.output = texts[0]
        if late:
            raise Wrong(late)
        return subprocess.CompletedProcess(command, process.returncode, *texts)

    def end(self, process):
        """Kills what still runs of the program; says where it doesn't die of that."""
        if process.poll() is not None:
            return ""
        os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(GRACE)
            return ""
        except subprocess.TimeoutExpired:
            return "; it cannot be killed, the driver holds it"

    def environment(self, command):
        own = {"GPU_CHECK_STEP": self.entry["name"]}
        if not any(str(part).startswith(str(self.build_dir)) for part in command):  # nvcc, python: they have their own
            return own
        own |= self.left_out
        own["LLMGEN_TEST_DATA"] = str(self.root / "tests" / "data")  # wherever the tests were built
        places = [str(self.build_dir / "lib")] if (self.build_dir / "lib").is_dir() else []
        # cuBLASLt as PyPI's wheels have it, for machines without a whole toolkit; looked for last
        places += [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
        places += sorted({os.path.dirname(path) for path in glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/lib/libcublasLt.so.*")})
        return {**own, "LD_LIBRARY_PATH": ":".join(places)} if places else own

    def must(self, command, **how):
        done = self.run(command, **how)
        if done.returncode != 0:
            tail = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-4:]
            raise Wrong(f"{pathlib.Path(str(command[0])).name}: {how_it_ended(done.returncode)}: " + " | ".join(tail)[:600])
        return done

    def tool(self, name):
        for folder in (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), *TOOLKITS):
            if folder and (pathlib.Path(folder) / "bin" / name).exists():
                return str(pathlib.Path(folder) / "bin" / name)
        found = shutil.which(name)
        if found is None:
            raise Missing(f"no {name} on this machine")
        return found

    def python(self):
        """The python that may have transformers."""
        oracle = self.root / "build" / "oracle" / "bin" / "python"
        return str(oracle) if oracle.exists() else sys.executable

    def binary(self, real, emulated):
        """A program of the build: the one for the card, or dry the one with the emulated device."""
        name = emulated if self.dry else real
        for found in (self.build_dir / place / name for place in PLACES):
            if found.is_file():
                return found
        raise Missing(f"{name} is not in {self.build_dir}")

    def llmgen(self):
        return self.binary("llmgen", "llmgen_emulated")

    def gtest(self, real, emulated, pattern, env=None):
        """Runs tests; says how many passed."""
        program = self.binary(real, emulated)
        try:
            done = self.run([program, f"--gtest_filter={pattern}"], env=env)
        except Wrong as wrong:
            raise Wrong(f"{wrong}{self.test_under_way()}") from None
        summary = [line for line in done.stdout.splitlines() if "PASSED" in line or "FAILED" in line or "SKIPPED" in line]
        for line in summary[:6]:
            self.say(line.strip())
        if done.returncode != 0:
            wrong = [line for line in done.stdout.splitlines() if "Failure" in line or "the device:" in line][:3]
            raise Wrong(f"{program.name}: {how_it_ended(done.returncode)}{self.test_under_way()} " + " | ".join(wrong) +
                        done.stderr[-200:].strip())
        if not any("PASSED" in line and " 0 tests" not in line for line in summary):
            raise Missing(f"{program.name} has no test {pattern}")

    def test_under_way(self):
        """The test that began last and didn't end, with how many had."""
        began = [line[13:] for line in self.output.splitlines() if line.startswith("[ RUN      ] ")]
        ended = sum(line.startswith(("[       OK ] ", "[  FAILED  ] ", "[  SKIPPED ] ")) and line.endswith(")")
                    for line in self.output.splitlines())
        return f", in {began[-1]} after {ended} tests" if len(began) > ended else ""
