"""How sure a number is: intervals, paired tests, power. Thin over scipy; statsmodels is the oracle in the tests."""

from recallatk.statistics.clusters import Clusters, cluster_queries
from recallatk.statistics.intervals import Interval, describe_rule, interval_of_mean, sign_rule

__all__ = ["Clusters", "Interval", "cluster_queries", "describe_rule", "interval_of_mean", "sign_rule"]
