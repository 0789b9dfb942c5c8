#!/usr/bin/env python3
"""Bands of bench/error_bands.py against hand calculations."""
import math
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import error_bands  # noqa: E402


class Bands(unittest.TestCase):
    def test_groups_have_the_same_weight(self):
        # A row of the first group weighs as much as ten of the second.
        self.assertEqual(error_bands.quantile([[5.0], list(range(10))], 0.5), 5)
        self.assertEqual(error_bands.quantile([[5.0], list(range(10))], 0.2), 3)
        self.assertEqual(error_bands.quantile([[5.0], list(range(10))], 1), 9)

    def test_a_further_group_may_have_any_score(self):
        # Nine groups of one row: 0.8 x 10 / 9 of the weight are eight rows. Four: 0.8 x 5 / 4 are all four.
        self.assertEqual(error_bands.conformal([[float(row)] for row in range(9)]), 7)
        self.assertEqual(error_bands.conformal([[float(row)] for row in range(4)]), 3)

    def test_bands_lie_around_the_median(self):
        least, greatest = error_bands.band_of([[math.log(1.1)] for _ in range(8)] + [[math.log(1.1) + 0.2]])
        self.assertAlmostEqual(least, math.log(1.1))
        self.assertAlmostEqual(greatest, math.log(1.1))

    def test_a_group_is_judged_by_the_remaining_groups(self):
        groups = {"own": [10.0, 0.0], **{f"other{number}": [-1.0, 1.0] for number in range(9)}}
        inside = error_bands.shares_inside(groups, error_bands.band_of, error_bands.is_between)
        self.assertEqual(inside["own"], 0.5)
        self.assertEqual(inside["other0"], 1)

    def test_classes_follow_from_programs_devices_and_runs(self):
        results = [{"id": "a", "program": "named", "rows": [{"row": 1, "devices": 64, "error": -0.5},
                                                            {"row": 2, "devices": 65, "error": 0.25}]},
                   {"id": "b", "program": "nearest", "rows": [{"row": 1, "devices": 8, "error": 0}]},
                   {"id": "layers", "program": None, "rows": [{"row": 1, "devices": 8, "error": 9}]}]
        calibrated = [{"group": "a", "runs": 3, "errors": [0.1, -0.1]}]
        (small, large, other), by_runs = error_bands.classes_of(results, calibrated)
        self.assertAlmostEqual(small.groups["a"][0], math.log(2))  # measured over predicted
        self.assertAlmostEqual(large.groups["a"][0], math.log(0.8))
        self.assertEqual(other.groups, {"b": [0.0]})
        self.assertEqual([(one.keys, one.count()) for one in by_runs], [({"least_runs": 3}, 2)])

    def test_differences_are_those_of_fast_plans(self):
        results = [{"id": "a", "program": "named", "differences": [[1.1, 0.25], [3.0, 0.26]]},
                   {"id": "layers", "program": None, "differences": [[2.0, 0.0]]}]
        self.assertEqual(error_bands.differences_of(results), {"a": [math.log(1.1)]})


if __name__ == "__main__":
    unittest.main()
