"""What commits hold, read through the cache: the ranges of their metaranges, and the entries of those ranges."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from retention_assets.core.guards import CheckResult
from retention_assets.lakefs.rules.addresses import addresses, canonical
from retention_assets.lakefs.rules.ranges import active_ranges
from retention_assets.lakefs.source.ranges import metaranges, ranges
from retention_assets.lakefs.sweep.guards import ranges_complete
from retention_assets.state.table_cache import TableCache


@dataclass(frozen=True, slots=True)
class CommittedContents:
    """The files behind commits as rows. Two walks over the same commits need not read them twice."""

    metarange_ranges: DataFrame
    entries: DataFrame
    ranges: DataFrame  # `active_ranges` of the commits

    def whole(self) -> CheckResult:
        """Return what the guard says that counts entries."""
        return ranges_complete(self.metarange_ranges, self.entries, self.ranges)

    def pairs(self) -> DataFrame:
        """Return `addresses` of the commits."""
        return addresses(self.ranges, self.entries)

    def pairs_of(self, commits: DataFrame) -> DataFrame:
        """Return `addresses` of some of the commits, in the columns of `potential_commits`."""
        return addresses(active_ranges(commits, self.metarange_ranges), self.entries)


def committed_contents(cache: TableCache, inside: Sequence[str], commits: DataFrame) -> CommittedContents:
    """Return what `commits` (`potential_commits`) hold; only files that no earlier run read are fetched.

    `inside`: the `spellings` of the namespace.

    Errors: of the files and the store, as the executors meet them.
    """
    of_commits, _ = cache.rows(commits.where("metarange_id != ''"), metaranges())
    held = active_ranges(commits, of_commits)
    entries, _ = cache.rows(held, ranges())
    return CommittedContents(of_commits, canonical(entries, inside), held)
