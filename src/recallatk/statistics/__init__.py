"""How sure a number is: intervals, paired tests, power. Thin over scipy; statsmodels is the oracle in the tests."""

from recallatk.statistics.clusters import Clusters, cluster_queries, name_clusters
from recallatk.statistics.intervals import RESAMPLES, SEED, Interval, describe_rule, interval_of_mean, sign_rule
from recallatk.statistics.paired import McNemar, PairedTest, adjust_holm, mcnemar, paired_test
from recallatk.statistics.power import (
    detectable_difference,
    paired_power,
    queries_needed,
    unpaired_difference,
    unpaired_queries,
)

__all__ = [
    "RESAMPLES",
    "SEED",
    "Clusters",
    "Interval",
    "McNemar",
    "PairedTest",
    "adjust_holm",
    "cluster_queries",
    "describe_rule",
    "detectable_difference",
    "interval_of_mean",
    "mcnemar",
    "name_clusters",
    "paired_power",
    "paired_test",
    "queries_needed",
    "sign_rule",
    "unpaired_difference",
    "unpaired_queries",
]
