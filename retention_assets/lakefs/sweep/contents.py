"""Reads the contents of commits through the cache: the ranges of metaranges, and the entries of ranges."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from retention_assets.core.frames import from_arrow
from retention_assets.core.guards import CheckResult
from retention_assets.lakefs.rules.name_sets import NameSets
from retention_assets.lakefs.rules.ranges import active_ranges, addresses, canonical
from retention_assets.lakefs.source.ranges import metaranges, ranges
from retention_assets.lakefs.sweep.guards import ranges_complete
from retention_assets.state.table_cache import TableCache


@dataclass(frozen=True, slots=True)
class CommittedContents:
    """The contents of commits as rows. They can be used several times without reading the files again."""

    metarange_ranges: DataFrame
    entries: DataFrame
    ranges: DataFrame  # `active_ranges` of the commits
    names: NameSets  # of the commits

    def whole(self) -> CheckResult:
        """Return the check result of the guard `ranges_complete`: whether every range has all its entries."""
        return ranges_complete(self.metarange_ranges, self.entries, self.ranges)

    def pairs(self) -> DataFrame:
        """Return the (path, address) pairs of all commits; see `addresses`."""
        return addresses(self.ranges, self.entries, self.names)

    def pairs_of(self, commits: DataFrame) -> DataFrame:
        """Return the (path, address) pairs of some of the commits. `commits`: rows of `potential_commits`."""
        return addresses(active_ranges(commits, self.metarange_ranges), self.entries)


def committed_contents(
    spark: SparkSession, cache: TableCache, namespace_urls: Sequence[str], commits: pa.Table
) -> CommittedContents:
    """Return the contents of `commits`. Only files that are not in the cache are read from the store.

    `commits`: rows of `potential_commits`. `namespace_urls`: see `generated_names`.

    Errors: CorruptFile and the errors of the store, raised on executors.
    """
    named = from_arrow(spark, commits.select(["metarange_id"])).where("metarange_id != ''")
    of_commits, _ = cache.rows(named, metaranges())
    names = NameSets.of_commits(commits)
    held = active_ranges(commits, of_commits, names)
    entries, _ = cache.rows(held, ranges())
    return CommittedContents(of_commits, canonical(entries, namespace_urls), held, names)
