"""How well predictions of rows agree with what was measured."""
import itertools
import json
import math
import statistics


def lines_of(entries):
    """JSON with an entry on each line."""
    return "[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n"


def mean(values):
    values = [value for value in values if value is not None]
    return statistics.fmean(values) if values else None


def mean_size(errors):
    return mean(abs(error) for error in errors)


def tau_b(predicted, measured):
    """Kendall's tau-b; 0 where either side has all pairs tied."""
    agreement = differ_predicted = differ_measured = 0
    for (a, b), (c, d) in itertools.combinations(zip(predicted, measured), 2):
        order, true_order = (a > c) - (a < c), (b > d) - (b < d)
        agreement += order * true_order
        differ_predicted += order != 0
        differ_measured += true_order != 0
    pairs = math.sqrt(differ_predicted * differ_measured)
    return agreement / pairs if pairs else 0.0


def regret(plans):
    """By how much the plan predicted fastest, of those predicted to fit, is slower than the best. `plans` are (predicted,
    measured, fits) of plans that ran; plans predicted equally fast count by their mean. None if none is predicted to fit."""
    fitting = [(predicted, measured) for predicted, measured, fits in plans if fits]
    if not fitting:
        return None
    best = min(predicted for predicted, _ in fitting)
    chosen = statistics.fmean(measured for predicted, measured in fitting if predicted == best)
    return chosen / min(measured for _, measured, _ in plans) - 1


def constant_rate(rates):
    """The one rate with the least mean |error| of times: |own / rate - 1| is piecewise linear in 1 / rate, so its least is at
    one of the rates."""
    return min(rates, key=lambda rate: sum(abs(own / rate - 1) for own in rates))


def plan_of(row):
    return json.dumps([row.config.get("parallel"), row.config["pipeline"]])


def choices(rows):
    """Rows that ran by what they share: model, cluster, precision and batch; only where three or more are of several plans."""
    shared = {}
    for row in rows:
        config = row.config
        key = json.dumps([config["workload"], config["cluster"], config["training"], config["pipeline"]["mini_batch"]])
        shared.setdefault(key, []).append(row)
    return [some for some in shared.values() if len(some) >= 3 and len(set(map(plan_of, some))) > 1]


def differences(rows):
    """[(factor, slowdown)] of each pair of plans of choices(): by which the ratio of their steps is off, and by how much the slower
    of both is predicted slower than the fastest plan. Of rows with the same plan only the first counts."""
    found = []
    for some in choices(rows):
        plans = list({plan_of(row): row for row in reversed(some)}.values())[::-1]
        fastest = min(row.predicted for row in plans)
        for a, b in itertools.combinations(plans, 2):
            off = abs(math.log((1 + a.error) / (1 + b.error)))
            found.append((math.exp(off), max(a.predicted, b.predicted) / fastest - 1))
    return found


def weighted(pairs):
    """The mean of values by their weights, of (value, weight) that have a value."""
    known = [(value, weight) for value, weight in pairs if value is not None]
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else None


def score(identity, rows, skipped):
    """The scores of a group; `rows` are those with a prediction, errors are fractions."""
    ran = [row for row in rows if row.timed]
    errors = [row.error for row in ran]
    sets = choices(ran)
    taus = [(tau_b([row.predicted for row in some], [row.measured for row in some]), len(some)) for some in sets]
    regrets = [(regret([(row.predicted, row.measured, row.fits) for row in some]), len(some)) for some in sets]
    return {"id": identity, "n": len(ran), "signed_mean": mean(errors), "mean_abs": mean_size(errors),
            "worst_abs": max(map(abs, errors), default=None),
            "memory_mean_abs": mean(row.memory_error for row in rows), "tau": weighted(taus), "regret": weighted(regrets),
            "fit": {"right": sum(row.fits == row.ran for row in rows),
                    "wrong_fits": sum(row.fits and not row.ran for row in rows),
                    "wrong_misfits": sum(row.ran and not row.fits for row in rows)},
            "constant_mfu_mean_abs": mean_size(row.constant_error for row in ran), "skipped": skipped,
            "rows": [{"row": row.number, "devices": row.given.get("gpus", row.given.get("pipeline")),
                      "error": round(row.error, 4)} for row in ran],
            "differences": [[round(factor, 4), round(slowdown, 4)] for factor, slowdown in differences(ran)]}
