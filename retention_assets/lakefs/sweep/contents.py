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
    """The contents of commits as rows. Using them again does not read the files again."""

    metarange_ranges: DataFrame
    entries: DataFrame
    ranges: DataFrame  # `active_ranges` of the commits
    names: NameSets  # the branch and rule names of the commits

    def check_complete(self) -> CheckResult:
        """Run the guard `ranges_complete`, which checks that every range has all its entries."""
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
    ids = from_arrow(spark, commits.select(["metarange_id"])).where("metarange_id != ''")
    of_commits, _ = cache.rows(ids, metaranges())
    names = NameSets.of_commits(commits)
    ranges_of_commits = active_ranges(commits, of_commits, names)
    entries, _ = cache.rows(ranges_of_commits, ranges())
    return CommittedContents(of_commits, canonical(entries, namespace_urls), ranges_of_commits, names)
