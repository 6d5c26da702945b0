"""tools/bench_guard's arithmetic: what is a regression and what isn't."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
PATH = pathlib.Path(__file__).parents[2] / "tools" / "bench_guard"
LOADER = importlib.machinery.SourceFileLoader("bench_guard", str(PATH))
guard = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_guard", LOADER))
LOADER.exec_module(guard)

BEFORE = {"f32": {"start": 1000, "token": 1000, "prompt": 1000}}


class BenchGuard(unittest.TestCase):
    def test_differences_leave_the_start_out(self):
        # 500 to start with, 7 a new token, 3 a prompt token.
        run = lambda prompt, new: 500 + 3 * prompt + 7 * new
        self.assertEqual(guard.differences(run(32, 2), run(32, 34), run(96, 2)), {"start": 500 + 96 + 14, "token": 7, "prompt": 3})

    def test_growth_is_caught_for_each_count(self):
        for name in BEFORE["f32"]:
            now = {"f32": dict(BEFORE["f32"])}
            now["f32"][name] = round(1000 * (1 + guard.TOLERANCE[name])) - 1
            self.assertFalse(guard.compare(now, BEFORE)[1], name)
            now["f32"][name] += 2
            lines, grew = guard.compare(now, BEFORE)
            self.assertTrue(grew, name)
            self.assertEqual([name in line and "GREW" in line for line in lines].count(True), 1)

    def test_a_fall_is_no_fault_but_said(self):
        lines, grew = guard.compare({"f32": {"start": 1000, "token": 500, "prompt": 1000}}, BEFORE)
        self.assertFalse(grew)
        self.assertTrue(any("--update" in line for line in lines))


unittest.main()
