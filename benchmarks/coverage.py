"""How often intervals hold what is true, and how often tests tell equal systems apart, on simulated test sets.

    python benchmarks/coverage.py [--rounds 1000] [--seed 0]

Hits of one class are drawn with a share of their own (beta-binomial), so they correlate by ICC. An interval of 95 %
should hold the true recall in 950 of 1,000 rounds, a test at 5 % should tell two equal systems apart in 50. With 1,000
rounds such shares are uncertain by about 0.014. The whole script takes some five minutes.
"""

from __future__ import annotations

import argparse

import numpy as np

from recallatk import IntervalRule
from recallatk.statistics import cluster_queries, interval_of_mean, paired_test

QUERIES_A_CLASS = 59
INTERVALS = ("wilson", "clopper-pearson", "cluster-t", "cluster-bootstrap")
# Classes, correlation, true recall.
COVERAGE = [(10, 0.1, 0.7), (30, 0.1, 0.7), (100, 0.05, 0.7), (100, 0.1, 0.7), (100, 0.1, 0.9)]
# Classes, correlation of who wins within a class; 0: none.
ALARMS = [(10, 0.2), (30, 0.2), (100, 0.2), (100, 0.0)]
DISCORDANCE = 0.1


def shares(rng: np.random.Generator, mean: float, correlation: float, classes: int) -> np.ndarray:
    """One share for each class, around the mean."""
    if not correlation:
        return np.full((classes, 1), mean)
    total = (1 - correlation) / correlation
    return rng.beta(mean * total, (1 - mean) * total, (classes, 1))


def measure_coverage(
    classes: int, correlation: float, mean: float, *, rounds: int, seed: int
) -> dict[str, tuple[float, float]]:
    """For each method the share of intervals that hold the mean, and how wide they are on average."""
    rng = np.random.default_rng([seed, classes])
    clusters = cluster_queries(np.repeat([f"{i}" for i in range(classes)], QUERIES_A_CLASS).tolist())
    held = dict.fromkeys(INTERVALS, 0)
    width = dict.fromkeys(INTERVALS, 0.0)
    for _ in range(rounds):
        share = shares(rng, mean, correlation, classes)
        hits = (rng.random((classes, QUERIES_A_CLASS)) < share).ravel().astype(float)
        for method in INTERVALS:
            found = interval_of_mean(hits, clusters, rule=IntervalRule(method))
            held[method] += found.low <= mean <= found.high
            width[method] += found.high - found.low
    return {method: (held[method] / rounds, width[method] / rounds) for method in INTERVALS}


def measure_alarms(classes: int, correlation: float, *, rounds: int, seed: int) -> dict[str, float]:
    """For each test the share of rounds in which two equal systems differ at 5 %."""
    rng = np.random.default_rng([seed, classes, int(100 * correlation)])
    clusters = cluster_queries(np.repeat([f"{i}" for i in range(classes)], QUERIES_A_CLASS).tolist())
    alarms = {"sign flips of classes": 0, "cluster t": 0, "McNemar exact": 0, "McNemar mid-p": 0}
    shape = (classes, QUERIES_A_CLASS)
    for _ in range(rounds):
        wins = rng.random(shape) < shares(rng, 0.5, correlation, classes)
        differs = rng.random(shape) < DISCORDANCE
        first, second = ((differs & which).ravel().astype(float) for which in (~wins, wins))
        found = paired_test(first, second, clusters, resamples=999)
        alarms["sign flips of classes"] += found.p_value <= 0.05
        alarms["cluster t"] += found.interval.low > 0 or found.interval.high < 0
        alarms["McNemar exact"] += found.mcnemar.exact <= 0.05
        alarms["McNemar mid-p"] += found.mcnemar.mid_p <= 0.05
    return {test: count / rounds for test, count in alarms.items()}


def main() -> None:
    """Print both tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"Coverage of nominal 95 % (and mean width), {options.rounds:,} rounds, {QUERIES_A_CLASS} queries a class\n")
    print(f"| classes | ICC | recall | {' | '.join(INTERVALS)} |\n|{'---|' * (3 + len(INTERVALS))}")
    for classes, correlation, mean in COVERAGE:
        found = measure_coverage(classes, correlation, mean, rounds=options.rounds, seed=options.seed)
        cells = [f"{held:.3f} ({width:.3f})" for held, width in found.values()]
        print(f"| {classes} | {correlation} | {mean} | {' | '.join(cells)} |", flush=True)
    print(f"\nEqual systems told apart at 5 %, {100 * DISCORDANCE:g} % of the queries discordant\n")
    for number, (classes, correlation) in enumerate(ALARMS):
        alarms = measure_alarms(classes, correlation, rounds=options.rounds, seed=options.seed)
        if not number:
            print(f"| classes | ICC of who wins | {' | '.join(alarms)} |\n|{'---|' * (2 + len(alarms))}")
        print(f"| {classes} | {correlation} | {' | '.join(f'{share:.3f}' for share in alarms.values())} |", flush=True)


if __name__ == "__main__":
    main()
