#!/usr/bin/env python3
"""The bands around predicted steps, from measured runs: workloads/transformers/error_bands.yaml.

    bench/error_bands.py RESULTS.json... --calibrated CALIBRATED.json... -o error_bands.yaml > bands.txt

RESULTS.json is what bench/clusters.py --json writes, CALIBRATED.json what bench/calibrated.py --json writes. A band is a split
conformal band whose groups of runs are exchangeable, and not their rows (hierarchical conformal prediction, arXiv 2306.06342): its
score is the distance of the logarithm of measured over predicted from the median, each group has the same weight, and a further
group without rows has the weight of one. Prints how many rows of each group are in the band of the remaining groups.
"""
import argparse
import json
import math
from pathlib import Path

SHARE = 0.8
MOST_SLOWDOWN = 0.25  # of plans whose differences count: searches compare plans that are about as fast as the fastest
MOST_DEVICES = 64
CALIBRATING = (3, 1)  # runs

HEAD = f"""\
# How far measured steps of published runs are from predicted steps, in measured over predicted: bench/error_bands.py writes this
# file from results/clusters and results/calibrated, whose pages say which runs these are. {100 * SHARE:.0f} % of the runs of a group are in a
# band, in the mean of the groups. The first row that a prediction is of has its band.
#   named         whether the config names the training program (parallel.release)
#   most_devices  of the cluster. Rows without the key hold for all larger clusters
#   least_runs    that calibrate the config, of programs that are named or not
#   rows, groups  runs, and their sources
# differences: by which factor the ratio of the steps of two plans for the same model and cluster may be off, of plans that are
# predicted at most {100 * MOST_SLOWDOWN:.0f} % slower than the fastest of their group.
"""


def quantile(groups, level):
    """The least score that scores with this share of the weight do not exceed; each group has the same weight."""
    weighted = sorted((score, 1 / len(scores) / len(groups)) for scores in groups for score in scores)
    sum_of_weights = 0
    for score, weight in weighted:
        sum_of_weights += weight
        if sum_of_weights >= level - 1e-9:
            return score
    return weighted[-1][0]


def conformal(groups):
    """The quantile with a further group that may have any score."""
    return quantile(groups, min(1, SHARE * (len(groups) + 1) / len(groups)))


def band_of(groups):
    """(least, greatest) of logarithms of ratios, by group."""
    middle = quantile(groups, 0.5)
    size = conformal([[abs(value - middle) for value in values] for values in groups])
    return middle - size, middle + size


def shares_inside(groups, band_of_rest, is_inside):
    """For each group the share of its values in the band of the remaining groups."""
    found = {}
    for name, values in groups.items():
        band = band_of_rest([rest for other, rest in groups.items() if other != name])
        found[name] = sum(is_inside(value, band) for value in values) / len(values)
    return found


def is_between(value, band):
    return band[0] <= value <= band[1]


class Class:
    """Rows of the same class of predictions, by group: logarithms of measured over predicted."""

    def __init__(self, words, keys):
        self.words, self.keys, self.groups = words, keys, {}

    def add(self, group, error):
        self.groups.setdefault(group, []).append(-math.log(1 + error))

    def count(self):
        return sum(map(len, self.groups.values()))

    def inside(self):
        return shares_inside(self.groups, band_of, is_between)

    def row(self):
        shortest, longest = map(math.exp, band_of(list(self.groups.values())))
        return {**self.keys, "shortest": round(shortest, 3), "longest": round(longest, 3), "rows": self.count(),
                "groups": len(self.groups)}


def classes_of(results, calibrated):
    small = Class(f"program named, up to {MOST_DEVICES} devices", {"named": "true", "most_devices": MOST_DEVICES})
    large = Class(f"program named, more than {MOST_DEVICES} devices", {"named": "true"})
    other = Class("program not known", {"named": "false"})
    for group in results:
        for row in group["rows"] if group["program"] else ():
            found = other if group["program"] != "named" else small if row["devices"] <= MOST_DEVICES else large
            found.add(group["id"], row["error"])
    by_runs = [Class(f"calibrated by {runs} run{'s' if runs > 1 else ''}", {"least_runs": runs}) for runs in CALIBRATING]
    for group in calibrated:
        for one in by_runs:
            if one.keys["least_runs"] == group["runs"]:
                for error in group["errors"]:
                    one.add(group["group"], error)
    return [small, large, other], [one for one in by_runs if one.groups]


def differences_of(results):
    groups = {}
    for group in results:
        near = [math.log(factor) for factor, slowdown in group["differences"] if slowdown <= MOST_SLOWDOWN]
        if near and group["program"]:
            groups[group["id"]] = near
    return groups


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def flow(row):
    return "{" + ", ".join(f"{key}: {value}" for key, value in row.items()) + "}"


def table(uncalibrated, calibrated, differences):
    """Lines: a class with the share of rows in bands of the remaining groups, and each group with the same."""
    lines = [f"{'class':<44}{'rows':>6}{'groups':>8}{'band':>20}{'left out, inside':>19}"]
    by_group = {}
    for one in (*uncalibrated, *calibrated):
        row, inside = one.row(), one.inside()
        band = f"{100 * (row['shortest'] - 1):+.1f} to {100 * (row['longest'] - 1):+.1f} %"
        lines.append(f"{one.words:<44}{row['rows']:>6}{row['groups']:>8}{band:>20}{100 * mean(inside.values()):>17.1f} %")
        if one in uncalibrated:
            for group, share in inside.items():
                by_group.setdefault(group, []).append((share, len(one.groups[group])))
    of_pairs = shares_inside(differences, conformal, lambda value, band: value <= band)
    size = f"{100 * (math.exp(conformal(list(differences.values()))) - 1):.1f} %"
    lines.append(f"{'differences, pairs':<44}{sum(map(len, differences.values())):>6}{len(differences):>8}{size:>20}"
                 f"{100 * mean(of_pairs.values()):>17.1f} %")
    lines += ["", f"{'group, not calibrated':<44}{'rows':>6}{'inside the bands of the remaining groups':>48}"]
    shares = {group: (sum(share * count for share, count in own) / sum(count for _, count in own), sum(count for _, count in own))
              for group, own in by_group.items()}
    lines += [f"{group:<44}{count:>6}{100 * share:>46.1f} %" for group, (share, count) in shares.items()]
    rows = sum(count for _, count in shares.values())
    lines.append(f"{'mean of groups':<44}{'':>6}{100 * mean(share for share, _ in shares.values()):>46.1f} %")
    lines.append(f"{'mean of rows':<44}{rows:>6}{100 * sum(share * count for share, count in shares.values()) / rows:>46.1f} %")
    return "\n".join(lines)


def text_of(classes, differences):
    rows = "\n".join(f"- {flow(one.row())}" for one in classes)
    factor = math.exp(conformal(list(differences.values())))
    pairs = {"factor": round(factor, 3), "pairs": sum(map(len, differences.values())), "groups": len(differences)}
    return f"{HEAD}steps:\n{rows}\ndifferences: {flow(pairs)}\n"


def read_all(paths):
    return [entry for path in paths for entry in json.loads(Path(path).read_text())]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", metavar="RESULTS.json", nargs="+")
    parser.add_argument("--calibrated", metavar="CALIBRATED.json", nargs="+", default=[])
    parser.add_argument("-o", dest="output", metavar="FILE", required=True, type=Path)
    asked = parser.parse_args()
    results = read_all(asked.results)
    uncalibrated, calibrated = classes_of(results, read_all(asked.calibrated))
    differences = differences_of(results)
    asked.output.write_text(text_of([*uncalibrated, *calibrated], differences))
    print(table(uncalibrated, calibrated, differences))


if __name__ == "__main__":
    main()
