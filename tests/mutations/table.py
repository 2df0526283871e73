"""The mutations: each removes one promise from the source. Source: docs/safety.md."""

from tests.mutations.mutation import Mutation

_CANDIDATES = "retention_assets/lakefs/rules/candidates.py"
_CLASSIFIED = "tests/lakefs/rules/test_candidates.py::test_an_object_is_classified_by_everything_that_may_keep_it"
_PASSES = (
    "tests/lakefs/rules/test_candidates.py"
    "::test_a_time_is_old_enough_if_it_plus_the_grace_period_is_before_the_oldest_input"
)
_OVERTAKEN = (
    "tests/sweep/test_execute_plan.py"
    "::test_a_sweep_that_lost_its_lease_to_another_run_fails_and_leaves_the_record_of_that_run_the_newest"
)
_LOST_LEASE = "tests/sweep/test_worker.py::test_a_worker_whose_lease_is_lost_ends_after_its_current_chunk"
_SKIPPED = "tests/sweep/test_engine.py::test_an_object_that_is_live_again_is_skipped"
_ANOTHER = "tests/sweep/test_preconditions.py::test_missing_and_changed_objects_are_not_processed"
_WAITS = "tests/state/test_plan.py::test_an_object_waits_from_the_newest_input_of_one_plan_to_the_older_one_of_another"

KEEPING = (
    Mutation(
        name="tags do not protect",
        breaks="objects of a tagged commit stay (invariant 1)",
        file="retention_assets/lakefs/rules/committed.py",
        old="sorted(references.tags.items())",
        new="sorted({}.items())",
        caught_by=("tests/lakefs/rules/test_committed.py::test_every_keeper_of_a_commit_is_returned",),
    ),
    Mutation(
        name="a hold covers only the current head of its branch",
        breaks="an earlier head of a held branch stays held for the duration of the reflog (invariant 11)",
        file="retention_assets/lakefs/rules/committed.py",
        old="for head in gone if (head.kind, head.name) == (hold.kind, hold.value)",
        new="for head in () if (head.kind, head.name) == (hold.kind, hold.value)",
        caught_by=(
            "tests/lakefs/rules/test_committed.py"
            "::test_a_hold_also_covers_earlier_heads_of_its_branch_or_tag[the_commit_of_the_tag]",
        ),
    ),
    Mutation(
        name="objects that a tag or a hold protects are classified like other objects",
        breaks="a protected object is no candidate (invariant 1)",
        file=_CANDIDATES,
        old='.when(F.coalesce(F.col("protected"), F.lit(False)) | F.col("is_staged").isNotNull(), HELD)',
        new='.when(F.col("is_staged").isNotNull(), HELD)',
        caught_by=(
            f"{_CLASSIFIED}[staged_known-a tag protects]",
            f"{_CLASSIFIED}[staged_known-a held prefix covers a path]",
        ),
    ),
    Mutation(
        name="a hold on a prefix does not cover a path that is not text",
        breaks="an object that a hold may cover stays (invariant 1)",
        file="retention_assets/core/paths.py",
        old=" | is_unreadable(path) if prefixes",
        new=" if prefixes",
        caught_by=(f"{_CLASSIFIED}[staged_known-a held prefix covers a path that is not text]",),
    ),
    Mutation(
        name="a lifecycle rule covers a path that is not text",
        breaks="an object stays if it is unknown whether a rule covers it (invariant 3)",
        file="retention_assets/lakefs/rules/lifecycle.py",
        old="    return matches & ~is_unreadable(path)\n",
        new="    return matches\n",
        caught_by=(
            "tests/lakefs/rules/test_lifecycle.py::test_spark_and_python_classify_pairs_of_every_path_branches_and_time_alike",
        ),
    ),
    Mutation(
        name="an impossible date counts as an old date",
        breaks="unknown values keep more objects (invariant 3)",
        file="retention_assets/lakefs/rules/references.py",
        old="        return UNKNOWN_TIME\n",
        new="        return datetime(1970, 1, 1, tzinfo=UTC)\n",
        caught_by=(
            "tests/lakefs/rules/test_committed.py"
            "::test_a_commit_with_an_impossible_date_counts_as_later_than_all_others[0]",
        ),
    ),
    Mutation(
        name="a hold on a prefix covers nothing",
        breaks="an object that a hold covers stays (invariant 1)",
        file=_CANDIDATES,
        old='    held = F.col("protected") | covered_by_hold(F.col("key"), held_prefixes)\n',
        new='    held = F.col("protected")\n',
        caught_by=(f"{_CLASSIFIED}[staged_known-a held prefix covers a path]",),
    ),
    Mutation(
        name="the staged list is not used",
        breaks="a staged object stays (invariant 1)",
        file=_CANDIDATES,
        old='.when(F.coalesce(F.col("protected"), F.lit(False)) | F.col("is_staged").isNotNull(), HELD)',
        new='.when(F.coalesce(F.col("protected"), F.lit(False)), HELD)',
        caught_by=(
            f"{_CLASSIFIED}[staged_known-staged again]",
            f"{_CLASSIFIED}[staged_known-in no commit but staged]",
        ),
    ),
    Mutation(
        name="an unknown staged list is used as an empty list",
        breaks="unknown is not zero (invariant 3)",
        file=_CANDIDATES,
        old="F.lit(not staged_known)), KEPT)",
        new="F.lit(False)), KEPT)",
        caught_by=(f"{_CLASSIFIED}[staged_unknown-in no commit]",),
    ),
    Mutation(
        name="an old staged list is used with new references",
        breaks="a staged object that the content of HEAD hides from the list stays (invariant 1)",
        file="retention_assets/lakefs/sweep/guards.py",
        old="    if references_at - complete_until > _APART and (of_dump or is_short):\n",
        new="    if references_at - complete_until > 1_000 * _APART and (of_dump or is_short):\n",
        caught_by=("tests/state/test_plan.py::test_a_staged_list_that_is_hours_older_than_the_references_blocks",),
    ),
    Mutation(
        name="a staged list without its last page has no warning",
        breaks="a plan warns if its staged list may be incomplete (invariant 3)",
        file="retention_assets/lakefs/source/dump.py",
        old="        is_cut = all(self._reader.head(file).size > _PAGE_BYTES for file in files)\n",
        new="        is_cut = False\n",
        caught_by=(
            "tests/lakefs/source/test_dump.py"
            "::test_a_staged_list_of_only_full_pages_has_a_warning[only_the_first_page]",
        ),
    ),
    Mutation(
        name="an old staged list of a server is used with new references although nothing settles",
        breaks="a staged object that the content of HEAD hides from the list stays (invariant 1)",
        file="retention_assets/lakefs/sweep/guards.py",
        old="    is_short = settle is not None and settle < _PROTECTS\n",
        new="    is_short = False\n",
        caught_by=(
            "tests/state/test_plan.py"
            "::test_a_staged_list_of_a_server_that_is_hours_older_blocks_if_settle_does_not_protect_hidden_objects",
        ),
    ),
    Mutation(
        name="the wait is counted until the references were read",
        breaks="an object that moved between the first plan's list and references is in the later list (invariant 5)",
        file="retention_assets/lakefs/sweep/planning.py",
        old="        return min(self.staged_until, self.graph.taken_at) if self.staged_known",
        new="        return max(self.staged_until, self.graph.taken_at) if self.staged_known",
        caught_by=(f"{_WAITS}[staged_at]", f"{_WAITS}[references_at]"),
    ),
    Mutation(
        name="the wait is counted from the older of the staged list and the references",
        breaks="an object that moved between the first plan's list and references is in the later list (invariant 5)",
        file="retention_assets/lakefs/sweep/planning.py",
        old="(min(self.inventory.taken_at, *self.checked_at), max(self.checked_at))\n",
        new="(min(self.inventory.taken_at, *self.checked_at), min(self.checked_at))\n",
        caught_by=(f"{_WAITS}[staged_at]", f"{_WAITS}[references_at]"),
    ),
    Mutation(
        name="the wait is counted from a listing of any age",
        breaks="a first plan deletes nothing, however old its listing is (invariant 5)",
        file="retention_assets/core/settle.py",
        old="    return max(oldest, newest_read - _LISTING)\n",
        new="    return oldest\n",
        caught_by=(
            "tests/assets/test_icechunk_plan.py"
            "::test_a_plan_whose_history_was_read_days_after_its_listing_deletes_nothing_that_must_settle",
        ),
    ),
    Mutation(
        name="a staged object is not live",
        breaks="the liveness check finds staged objects (invariant 5)",
        file=_CANDIDATES,
        old="    held = committed.unionByName(staged.select(",
        new="    held = committed.unionByName(staged.limit(0).select(",
        caught_by=(
            "tests/lakefs/rules/test_candidates.py"
            "::test_an_address_is_live_by_an_active_commit_a_tag_a_hold_or_a_staging_area",
        ),
    ),
    Mutation(
        name="branches after the first 64 are left out of the union",
        breaks="an object stays as long as any branch that has it keeps it (invariant 11)",
        file="retention_assets/lakefs/rules/name_sets.py",
        old="    np.bitwise_or.at(words, (position // _BITS, row),",
        new="    np.bitwise_or.at(words, (position // _BITS * 0, row),",
        caught_by=("tests/lakefs/rules/test_name_sets.py::test_the_union_of_sets_is_the_union_of_the_lists",),
    ),
    Mutation(
        name="the end of the grace period counts as after it",
        breaks="an object exactly as old as the grace period stays (invariant 2)",
        file="retention_assets/core/age.py",
        old="F.coalesce(end < limit, F.lit(False))",
        new="F.coalesce(end <= limit, F.lit(False))",
        caught_by=(f"{_PASSES}[a_second_that_ends_at_the_limit]",),
    ),
    Mutation(
        name="a time without a fraction counts as the beginning of its second",
        breaks="a truncated time may have been up to a second later (invariant 2)",
        file="retention_assets/core/age.py",
        old="F.when(is_whole_second, micros + F.lit(_SECOND)).otherwise(micros)",
        new="F.when(is_whole_second, micros).otherwise(micros)",
        caught_by=(f"{_PASSES}[a_second_that_ends_at_the_limit]",),
    ),
    Mutation(
        name="other names than lakeFS's own are candidates",
        breaks="only objects with generated names are deleted (invariant 10)",
        file=_CANDIDATES,
        old='F.when(~is_generated(F.col("address")), FOREIGN)',
        new='F.when(F.col("address").startswith("_lakefs/"), FOREIGN)',
        caught_by=(f"{_CLASSIFIED}[staged_known-a user's file that a commit held]",),
    ),
)

HISTORY = (
    Mutation(
        name="second parents are not followed",
        breaks="a branch has the commits that any parent leads to",
        file="retention_assets/lakefs/rules/committed.py",
        old="        for parent in commit.parents:\n            masks[parent] |= masks[commit.commit_id]\n",
        new="        for parent in commit.parents[:1]:\n            masks[parent] |= masks[commit.commit_id]\n",
        caught_by=(
            "tests/lakefs/rules/test_committed.py::test_the_graph_names_branches_by_any_parent_and_dangling_by_the_main_one",
        ),
    ),
    Mutation(
        name="a branch or tag whose commit is missing is skipped",
        breaks="missing commits end the run (invariant 3)",
        file="retention_assets/lakefs/rules/references.py",
        old='                raise SourceError(f"{kind} {name!r}: its commit {commit_id} {missing}")\n',
        new="                continue\n",
        caught_by=(
            "tests/lakefs/rules/test_committed.py::test_contradictory_references_end_the_run[tag]",
            "tests/lakefs/rules/test_committed.py::test_protection_refuses_incomplete_references_too",
        ),
    ),
    Mutation(
        name="the shortest duration of the branches of a pair decides",
        breaks="the longest duration of the branches of a pair decides",
        file="retention_assets/policy/rules.py",
        old="later(added, max(finite))",
        new="later(added, min(finite))",
        caught_by=(
            "tests/policy/test_rules.py"
            "::test_the_longest_retention_of_the_branches_of_a_pair_decides[shorter_branch_does_not_decide]",
        ),
    ),
    Mutation(
        name="in Spark the shortest duration of the branches of a pair decides",
        breaks="Spark classifies as the Python rule does",
        file="retention_assets/lakefs/rules/lifecycle.py",
        old="    return F.greatest(by_default, *durations) if durations else by_default\n",
        new="    return F.least(by_default, *durations) if durations else by_default\n",
        caught_by=(
            "tests/lakefs/rules/test_lifecycle.py"
            "::test_a_pair_below_a_prefix_is_due_as_documented[upstream: on main and b1, 9 days]",
        ),
    ),
    Mutation(
        name="heads that are gone are forgotten",
        breaks="objects of a head that a plan found stay for the duration of the reflog (invariant 11)",
        file="retention_assets/lakefs/rules/reflog.py",
        old="if head.commit_id in references.commits and now[head.kind].get(head.name) != head.commit_id\n",
        new="if head.commit_id not in references.commits\n",
        caught_by=("tests/lakefs/rules/test_reflog.py::test_a_deleted_branch_keeps_its_commits_for_its_own_retention",),
    ),
    Mutation(
        name="lost commits are forgotten if the last plan was long ago",
        breaks="what one plan saw as held by a branch or tag stays held after it was last seen (invariant 11)",
        file="retention_assets/lakefs/rules/reflog.py",
        old="if _was_found_last(head, memory) or _is_remembered(",
        new="if _is_remembered(",
        caught_by=(
            "tests/lakefs/rules/test_reflog.py"
            "::test_a_vanished_commit_is_reported_as_lost_for_30_days_however_long_ago_the_last_plan_was",
        ),
    ),
    Mutation(
        name="lost commits are forgotten a plan later",
        breaks="what one plan saw as held by a branch or tag stays held after it was last seen (invariant 11)",
        file="retention_assets/lakefs/rules/reflog.py",
        old="last_seen=at - _JUST_BEFORE",
        new="last_seen=head.last_seen",
        caught_by=(
            "tests/lakefs/rules/test_reflog.py"
            "::test_a_vanished_commit_is_reported_as_lost_for_30_days_from_the_first_plan_without_it[29_days_later]",
        ),
    ),
    Mutation(
        name="housekeeping follows links",
        breaks="nothing outside the warehouse is removed",
        file="retention_assets/warehouse/warehouse.py",
        old="self.location(*parts), topdown=False):  # follows no links",
        new="self.location(*parts), topdown=False, followlinks=True):",
        caught_by=("tests/warehouse/test_housekeeping.py::test_links_are_not_followed",),
    ),
    Mutation(
        name="a purge deletes manifests after it lost its lease",
        breaks="nothing is changed after the lease is lost",
        file="retention_assets/sweep/purges.py",
        old="conditional=False).delete_all(to_delete, holds_lease)",
        new="conditional=False).delete_all(to_delete)",
        caught_by=(
            "tests/sweep/test_undo.py"
            "::test_a_purge_that_was_suspended_does_not_delete_the_manifests_of_the_run_that_took_its_lease",
        ),
    ),
    Mutation(
        name="the date of a commit is used unchecked",
        breaks="dates that users write make nothing older than the first plan that did not know it (invariant 11)",
        file="retention_assets/lakefs/rules/reflog.py",
        old="        if earliest is not None and earliest > commit.created_at:\n",
        new="        if earliest is None:\n",
        caught_by=("tests/lakefs/rules/test_reflog.py::test_a_backdated_commit_expires_nothing",),
    ),
    Mutation(
        name="Icechunk: a snapshot exactly as old as its rule has expired",
        breaks="only snapshots that were flushed before the limit expire",
        file="retention_assets/icechunk/rules/retention.py",
        old="    return _Due(max(by_age, by_number), by_age < as_of, keep, reach)\n",
        new="    return _Due(max(by_age, by_number), by_age <= as_of, keep, reach)\n",
        caught_by=(
            "tests/icechunk/rules/test_retention.py::test_a_snapshot_is_kept_at_the_exact_limit_and_not_a_microsecond_later",
        ),
    ),
)

READING = (
    Mutation(
        name="a key is copied without a check that it fits",
        breaks="no content of a file causes a write outside an array (invariant 3)",
        file="retention_assets/decoding/kernels.py",
        old="if size < 0 or shared > known + TRAILER or size + TRAILER > len(keys) - start:",
        new="if size < 0 or shared > known + TRAILER:",
        caught_by=("tests/lakefs/formats/test_hostile_tables.py::test_a_key_is_copied_only_if_it_fits",),
    ),
    Mutation(
        name="the staged list ends after its first page",
        breaks="every page of the staged list is read (invariant 3)",
        file="retention_assets/lakefs/source/staged_list.py",
        old="            if not token:\n                return Scan",
        new="            if token is not None:\n                return Scan",
        caught_by=(
            "tests/lakefs/source/test_api.py::TestStaged::test_an_empty_page_does_not_hide_the_others"
            "[the_first_page_is_empty]",
        ),
    ),
    Mutation(
        name="a page without rows is used whatever its branches show",
        breaks="a branch that is deleted during the scan hides no staged object of other branches (invariant 3)",
        file="retention_assets/lakefs/source/staged_list.py",
        old="            if not any(self._for_each(self._shows_any, on_page)):\n",
        new="            if on_page is not None:\n",
        caught_by=(
            "tests/lakefs/source/test_api.py::TestStaged::test_a_page_that_lost_its_rows_is_requested_again"
            "[feature-long-lived]",
        ),
    ),
    Mutation(
        name="a staged list of another time is removed like a list of our own",
        breaks="only files that the server wrote for this run are deleted from `_lakefs/` (invariant 10)",
        file="retention_assets/lakefs/source/api.py",
        old="return own if is_ours else ()",
        new="return own",
        caught_by=(
            "tests/lakefs/source/test_api.py::TestRelease::test_a_staged_list_that_is_older_than_the_request_stays",
        ),
    ),
    Mutation(
        name="a staged list outside of the folder of its run is removed",
        breaks="only files that the server wrote for this run are deleted from `_lakefs/` (invariant 10)",
        file="retention_assets/lakefs/source/api.py",
        old="own = sorted(file for file in files if file.startswith(folder))",
        new="own = sorted(files)",
        caught_by=("tests/lakefs/source/test_api.py::TestRelease::test_a_page_that_lies_outside_of_its_run_stays",),
    ),
    Mutation(
        name="a page of staged objects that was not written is not detected",
        breaks="a staged list with a missing page is refused (invariant 3)",
        file="retention_assets/lakefs/source/api.py",
        old="        if len(files) < len(locations):\n",
        new="        if not files and len(locations) > 1:\n",
        caught_by=(
            "tests/lakefs/source/test_api.py::TestStaged::test_each_page_with_rows_must_have_a_file",
            "tests/lakefs/source/test_api.py::TestStaged"
            "::test_a_file_that_the_server_wrote_and_that_is_missing_from_the_store_is_an_error",
        ),
    ),
    Mutation(
        name="a range that cannot be read is skipped",
        breaks="an unreadable file ends the run (invariant 3)",
        file="retention_assets/warehouse/table_cache.py",
        old="                yield decode(content, reader.describe(name), table_id)\n",
        new=(
            "                try:\n"
            "                    yield decode(content, reader.describe(name), table_id)\n"
            "                except Exception:\n"
            "                    continue\n"
        ),
        caught_by=(
            "tests/warehouse/test_table_cache.py::test_one_unreadable_file_of_several_ends_the_reading[ranges-cut]",
            "tests/warehouse/test_table_cache.py::test_one_unreadable_file_of_several_ends_the_reading[metaranges-altered]",
        ),
    ),
    Mutation(
        name="no guard refuses",
        breaks="a plan that a guard refuses is not stored",
        file="retention_assets/core/guards.py",
        old="    return [check_result for check_result in check_results if not check_result.passed]\n",
        new="    return [check_result for check_result in check_results if not check_result.guard]\n",
        caught_by=(
            "tests/lakefs/sweep/test_guards.py"
            "::test_if_one_guard_refuses_there_is_no_plan[a candidate is lost on the way]",
        ),
    ),
)

SWEEPING = (
    Mutation(
        name="any hash approves the day's plan",
        breaks="an approval is bound to a plan's hash",
        file="retention_assets/state/plan.py",
        old="    if plan.plan_hash != plan_hash.strip().lower():\n",
        new="    if not plan_hash:\n",
        caught_by=("tests/state/test_approval.py::test_another_hash_approves_nothing[../plans]",),
    ),
    Mutation(
        name="an approval of another hash is accepted",
        breaks="an approval is bound to a plan's hash",
        file="retention_assets/state/approval.py",
        old=" and problem_in(document, Approval) is None and found.plan_hash == plan_hash:\n",
        new=" and problem_in(document, Approval) is None:\n",
        caught_by=("tests/state/test_approval.py::test_an_approval_that_was_changed_approves_nothing[document1]",),
    ),
    Mutation(
        name="an approval for other settings is accepted",
        breaks="an approval is for the settings under which it was given",
        file="retention_assets/state/approval.py",
        old="    if differing := differences(approval.terms, terms):\n",
        new="    if differing := differences(terms, terms):\n",
        caught_by=(
            "tests/state/test_approval.py::test_an_approval_is_for_the_settings_under_which_it_was_given",
            "tests/state/test_approval.py::test_an_approval_to_delete_is_none_to_quarantine",
        ),
    ),
    Mutation(
        name="a plan from the future is approved",
        breaks="a plan that was made while a clock was wrong is not executed",
        file="retention_assets/state/approval.py",
        old="    return -MARGIN <= now - at <= life\n",
        new="    return now - at <= life\n",
        caught_by=(
            "tests/state/test_approval.py::test_a_plan_from_the_future_is_neither_approved_nor_executed[a budget]",
            "tests/assets/test_operations.py::test_a_plan_that_no_sweep_may_execute_is_not_swept[of the future]",
        ),
    ),
    Mutation(
        name="the memory of a plan from the future is used",
        breaks="every plan since then names a deleted object, and plans remember heads (invariants 5 and 11)",
        file="retention_assets/state/memory.py",
        old="    if ahead:\n",
        new="    if not found:\n",
        caught_by=("tests/state/test_memory.py::test_no_plan_is_made_while_a_plan_from_the_future_is_stored",),
    ),
    Mutation(
        name="a change of an Icechunk repository trusts the clock of its machine",
        breaks="the lease of a running sweep is not taken while it is in force (promise 6 of docs/safety.md)",
        file="retention_assets/icechunk/administration/operations.py",
        old='    require_clock(repository, access, clock, "was changed")\n',
        new="",
        caught_by=(
            "tests/cli/test_icechunk.py"
            "::test_a_clock_that_is_ahead_changes_nothing_and_leaves_the_lease_of_a_running_sweep[branch]",
        ),
    ),
    Mutation(
        name="an upgrade does not notice that snapshots got other parents",
        breaks="no change of another writer is lost (promise 13 of docs/safety.md)",
        file="retention_assets/icechunk/administration/upgrade.py",
        old="    return source.parents_in_files(parents).items() <= parents.items()\n",
        new="    return True\n",
        caught_by=(
            "tests/icechunk/sweep/test_upgrade.py"
            "::test_an_expiration_by_icechunk_during_the_upgrade_undoes_the_upgrade[expired]",
        ),
    ),
    Mutation(
        name="the quarantine of another location is purged",
        breaks="the liveness check of a purge reads the repository of the quarantined objects (invariant 1)",
        file="retention_assets/sweep/undo.py",
        old="    require_same_location(undo.warehouse, undo.repository)\n    require_clock(",
        new="    require_clock(",
        caught_by=("tests/sweep/test_undo.py::test_the_quarantine_of_another_location_is_neither_restored_nor_purged",),
    ),
    Mutation(
        name="the warehouse may be inside the storage",
        breaks="plans list the files of the warehouse as objects (invariant 6)",
        file="retention_assets/state/binding.py",
        old='        if overlap(tables := f"{url}/{name}", location):\n',
        new='        if (tables := f"{url}/{name}") == location:\n',
        caught_by=(
            "tests/state/test_binding.py::test_a_warehouse_inside_the_storage_is_refused_in_every_spelling[inside]",
        ),
    ),
    Mutation(
        name="one location may have tables under two names",
        breaks="one owner per location (invariant 6)",
        file="retention_assets/state/binding.py",
        old="    _require_one_name(warehouse, repository, location)\n",
        new="",
        caught_by=(
            "tests/state/test_binding.py::test_a_repository_that_is_renamed_does_not_begin_without_its_tables[storage]",
        ),
    ),
    Mutation(
        name="a plan is made from the listing of another storage",
        breaks="ledgers, memory and acknowledgements count only at their own location",
        file="retention_assets/state/binding.py",
        old="        if details.storage not in (None, storage):\n",
        new="        if False:\n",
        caught_by=(
            "tests/icechunk/sweep/test_planning.py"
            "::test_tables_of_another_storage_than_the_configured_one_are_refused_by_name[another_inventory]",
        ),
    ),
    Mutation(
        name="Icechunk: the snapshot of an open session expires",
        breaks="a session that is shorter than the grace period can read and commit",
        file="retention_assets/icechunk/rules/retention.py",
        old="for one in in_use if one in decisions",
        new="for one in () if one in decisions",
        caught_by=(
            "tests/icechunk/sweep/test_retained_set.py"
            "::test_an_expired_snapshot_stays_in_the_history_while_its_child_is_young[format_2]",
        ),
    ),
    Mutation(
        name="Icechunk: the tip from which a branch was reset is dropped at once",
        breaks="a session that is shorter than the grace period can read and commit",
        file="retention_assets/icechunk/sweep/left_tips.py",
        old="        left |= dict.fromkeys(tips, next_at or state.taken_at)\n",
        new="        left |= dict.fromkeys((), next_at)\n",
        caught_by=(
            "tests/icechunk/sweep/test_left_tips.py"
            "::test_a_tip_that_an_earlier_plan_found_stays_for_the_grace_period_after_the_next_plan"
            "[format_2-main-is-reset-unreachable]",
        ),
    ),
    Mutation(
        name="Icechunk: the snapshot of an open session is deleted if icechunk expired it",
        breaks="a session that is shorter than the grace period can read and commit",
        file="retention_assets/icechunk/rules/collection.py",
        old="in removed_parents(repo) if child in young",
        new="in () if child in young",
        caught_by=(
            "tests/icechunk/sweep/test_open_sessions.py"
            "::test_the_snapshot_of_a_session_stays_while_its_child_is_young_although_icechunk_expired_it",
        ),
    ),
    Mutation(
        name="Icechunk: a tip that was left is dropped at once if only the ops log shows it",
        breaks="a session that is shorter than the grace period can read and commit",
        file="retention_assets/icechunk/sweep/left_tips.py",
        old="    for tip, at in tips_left(updates, parents=parents).items():\n",
        new="    for tip, at in tips_left((), parents=parents).items():\n",
        caught_by=(
            "tests/icechunk/sweep/test_left_tips.py"
            "::test_a_tip_that_no_plan_found_stays_for_the_grace_period_after_the_ops_log_says_that_it_was_left"
            "[main-is-amended-unreachable-format_2]",
        ),
    ),
    Mutation(
        name="Icechunk: the snapshot of an open session is deleted if icechunk expired it with its child",
        breaks="a session that is shorter than the grace period can read and commit",
        file="retention_assets/icechunk/source/ops_log.py",
        old="            found[child] = parent\n",
        new="            found.pop(child, None)\n",
        caught_by=(
            "tests/icechunk/sweep/test_open_sessions.py"
            "::test_the_snapshot_of_a_session_stays_although_icechunk_expired_it_together_with_its_young_child"
            "[one_object]",
            "tests/icechunk/sweep/test_open_sessions.py"
            "::test_a_sweep_is_refused_if_icechunk_expired_a_snapshot_of_the_plan_with_a_child_that_is_newer_than_the"
            "_plan",
        ),
    ),
    Mutation(
        name="Icechunk: a sweep forgets which snapshots were in use when the plan was made",
        breaks="a sweep makes only the edits that were approved",
        file="retention_assets/icechunk/sweep/retained_set.py",
        old="in_use=encoded(expiration.selection.in_use),",
        new="in_use=(),",
        caught_by=(
            "tests/icechunk/sweep/test_publishing.py"
            "::test_a_publication_gives_the_planned_parents_if_sessions_may_be_open_on_a_snapshot[format_1]",
            "tests/icechunk/sweep/test_publishing.py"
            "::test_a_publication_gives_the_planned_parents_if_sessions_may_be_open_on_a_snapshot[format_2]",
            "tests/icechunk/sweep/test_retained_set.py"
            "::test_the_projected_set_keeps_what_was_in_use_when_the_plan_was_made[format_2]",
        ),
    ),
    Mutation(
        name="Icechunk: a tip that was left before an upgrade is dropped at once",
        breaks="a session that is shorter than the grace period can read and commit",
        file="retention_assets/icechunk/sweep/left_tips.py",
        old="one.kind is not UpdateKind.REPO_MIGRATED for one in updates",
        new="one.kind is not UpdateKind.GC_RAN for one in updates",
        caught_by=(
            "tests/icechunk/sweep/test_left_tips.py"
            "::test_a_tip_that_was_left_before_an_upgrade_stays_for_the_grace_period_after_the_upgrade"
            "[by-icechunk-format_1]",
        ),
    ),
    Mutation(
        name="Icechunk: the ops log ends where a backup is missing",
        breaks="unknown is not zero (invariant 3)",
        file="retention_assets/icechunk/source/ops_log.py",
        old="        if before is None:\n            known_since",
        new="        if before is None:\n            return\n            known_since",
        caught_by=(
            "tests/icechunk/sweep/test_left_tips.py"
            "::test_a_plan_is_refused_if_the_ops_log_of_the_grace_period_has_a_gap[format_2]",
        ),
    ),
    Mutation(
        name="a sweep continues in a repository that became read-only",
        breaks="liveness is checked again just before deleting (invariant 5)",
        file="retention_assets/icechunk/sweep/sweeping.py",
        old="        if state.repo is not None:\n            require_online(",
        new="        if False:\n            require_online(",
        caught_by=(
            "tests/icechunk/sweep/test_sweeping.py"
            "::test_a_repository_that_becomes_read_only_during_a_sweep_ends_it[format_2]",
        ),
    ),
    Mutation(
        name="Icechunk: a sweep begins although an older repo object is in the place of the planned one",
        breaks="nothing that is needed is deleted",
        file="retention_assets/icechunk/sweep/sweeping.py",
        old="        if state.repo is not None:\n            plans = ",
        new="        if False:\n            plans = ",
        caught_by=(
            "tests/icechunk/sweep/test_sweeping.py"
            "::test_a_sweep_is_refused_if_the_ops_log_does_not_have_the_newest_entry_of_an_earlier_plan[format_2]",
        ),
    ),
    Mutation(
        name="an object is removed although another writer replaced it",
        breaks="an object other than the one that was read stays (invariant 5)",
        file="retention_assets/objectstore/mutate/writing.py",
        old="            return found == e_tag\n",
        new="            return found is not None\n",
        caught_by=(
            "tests/icechunk/sweep/test_upgrade.py"
            "::test_a_reference_that_is_written_in_the_last_moment_is_not_deleted_on_a_store_without_conditions",
        ),
    ),
    Mutation(
        name="a failed removal is sent again without a look at the object",
        breaks="no commit of a writer is lost (promise 13)",
        file="retention_assets/objectstore/mutate/writing.py",
        old=", retry_policy=_ONE_TRY",
        new="",
        caught_by=(
            "tests/objectstore/test_replacing.py"
            "::test_an_object_that_changes_while_its_failed_removal_is_sent_again_stays[without_a_response]",
        ),
    ),
    Mutation(
        name="one container of Azure in two schemes counts as two",
        breaks="one owner per location (invariant 6)",
        file="retention_assets/config/locations.py",
        old="    if scheme in _AZURE:\n",
        new="    if False:\n",
        caught_by=(
            "tests/lakefs/sweep/test_guards.py"
            "::test_locations_are_compared_in_the_form_in_which_they_are_opened[a_container_in_two_schemes]",
        ),
    ),
    Mutation(
        name="a policy is applied as of a future day",
        breaks="dates that users can write never make anything older (invariant 11)",
        file="retention_assets/config/timestamps.py",
        old="        if found.isoformat() == day and FIRST_DAY <= found <= utc_now().date():\n",
        new="        if True:\n",
        caught_by=(
            "tests/assets/test_icechunk_plan.py::test_a_run_for_a_day_without_a_partition_is_refused[2019-12-31]",
        ),
    ),
    Mutation(
        name="a table that has lost rows is read",
        breaks="a table has as many rows as were written",
        file="retention_assets/warehouse/warehouse.py",
        old="        if (found := sum(file.num_rows for file in files)) != written:\n",
        new="        if (found := sum(file.num_rows for file in files)) > written:\n",
        caught_by=(
            "tests/warehouse/test_warehouse.py::test_a_table_with_other_rows_than_were_written_is_refused[local-44]",
        ),
    ),
    Mutation(
        name="the plan hash does not cover the candidates",
        breaks="a plan with other candidates has another hash",
        file="retention_assets/state/plan.py",
        old='"references": references_hash, "candidates": digest}',
        new='"references": references_hash, "candidates": ""}',
        caught_by=("tests/state/test_plan.py::test_each_part_of_a_plan_changes_its_hash",),
    ),
    Mutation(
        name="objects that are live again are not checked",
        breaks="liveness is checked again just before deleting (invariant 5)",
        file="retention_assets/sweep/engine.py",
        old=(
            '    detail = F.when(F.col("is_live").isNotNull(), F.lit(_LIVE_AGAIN)).when(committed, F.lit(_COMMITTED))\n'
        ),
        new="    detail = F.when(committed, F.lit(_COMMITTED))\n",
        caught_by=(
            f"{_SKIPPED}[it is live again]",
            f"{_SKIPPED}[it is live again, and no commit has it]",
        ),
    ),
    Mutation(
        name="an object that an interrupted attempt deleted is skipped if it is live again",
        breaks="the ledger has what a sweep did",
        file="retention_assets/sweep/engine.py",
        old='F.col("detail").isNotNull() & F.col("attempted_targets").isNull()',
        new='F.col("detail").isNotNull()',
        caught_by=(
            "tests/sweep/test_engine.py"
            "::test_an_object_that_is_live_again_is_missing_if_an_interrupted_attempt_deleted_it[delete]",
        ),
    ),
    Mutation(
        name="an overwritten object counts as the planned object",
        breaks="only the planned object is deleted (invariant 5)",
        file="retention_assets/sweep/preconditions.py",
        old="    stays = changed | must_stay | ~(there | keeps_missing)\n",
        new="    stays = must_stay | ~(there | keeps_missing)\n",
        caught_by=(
            f"{_ANOTHER}[it has another size]",
            f"{_ANOTHER}[it has another ETag]",
        ),
    ),
    Mutation(
        name="an object that the newest plan does not name is deleted",
        breaks="every plan since then names a deleted object (invariant 5)",
        file="retention_assets/sweep/preconditions.py",
        old="    stays = changed | must_stay | ~(there | keeps_missing)\n",
        new="    stays = changed | ~(there | keeps_missing)\n",
        caught_by=(f"{_ANOTHER}[the newest plan does not name it]",),
    ),
    Mutation(
        name="the purge of a copy hides that the object was restored",
        breaks="a restored object that is lost refuses plans (invariant 7)",
        file="retention_assets/state/ledger.py",
        old='        ~is_copy | F.coalesce(F.col("last_other") != Outcome.RESTORED, F.lit(True))\n',
        new="        F.lit(True)\n",
        caught_by=(
            "tests/state/test_ledger.py"
            "::test_the_purge_of_a_copy_under_another_plan_does_not_hide_that_the_object_was_restored",
        ),
    ),
    Mutation(
        name="a restored object still counts as deleted",
        breaks="a live object that is lost refuses plans (invariant 7)",
        file="retention_assets/lakefs/sweep/planning.py",
        old="    listed = _listed_before(spark, warehouse, parameters)\n",
        new="    listed = None\n",
        caught_by=(
            "tests/state/test_plan.py"
            "::test_a_deleted_object_that_was_brought_back_refuses_the_plan_when_it_is_missing_again"
            "[yesterdays_plan_listed_it_again]",
        ),
    ),
    Mutation(
        name="the budget overwrites a withdrawal",
        breaks="no budget approves a plan that a person withdrew",
        file="retention_assets/state/approval.py",
        old="{_OF_BUDGET if by == BUDGET else ''}.json\"\n",
        new='.json"\n',
        caught_by=(
            "tests/state/test_approval.py::test_a_withdrawal_is_not_lost_when_the_budget_approves_at_the_same_time",
        ),
    ),
    Mutation(
        name="lost due objects of the newest plan are not detected",
        breaks="only objects that every plan since then names are deleted (invariant 5)",
        file="retention_assets/state/memory.py",
        old='        seen[known["name"]] = known["seen_at"]\n',
        new="        pass\n",
        caught_by=(
            "tests/state/test_plan.py::test_objects_wait_anew_after_the_earlier_objects_of_the_last_plan_were_lost",
            "tests/sweep/test_engine.py"
            "::test_the_newest_plan_still_excludes_objects_if_its_due_objects_were_lost[newest]",
        ),
    ),
    Mutation(
        name="a lost memory of the newest plan is not detected",
        breaks="commits of a branch that only the newest plan found stay as long as the reflog says (invariant 11)",
        file="retention_assets/lakefs/sweep/memory.py",
        old="    missing = [MEMORY, stored.lost, _HEADS] if stored.lost else []\n",
        new="    missing = list[str]()\n",
        caught_by=(
            "tests/state/test_memory.py"
            "::test_a_lost_memory_of_the_newest_plan_is_refused_although_an_older_one_is_left[its_heads]",
            "tests/state/test_memory.py"
            "::test_a_lost_memory_of_the_newest_plan_is_refused_although_an_older_one_is_left[its_directory]",
        ),
    ),
    Mutation(
        name="objects that a concurrent plan found live are not read",
        breaks="only objects that every plan since then names are deleted (invariant 5)",
        file="retention_assets/state/memory.py",
        old="    return [one for one in documents if one not in known]\n",
        new="    return []\n",
        caught_by=(
            "tests/state/test_plan.py"
            "::test_an_object_that_a_plan_found_live_at_the_same_time_waits_again[the_newer_state]",
            "tests/state/test_plan.py"
            "::test_an_object_that_a_plan_found_live_at_the_same_time_waits_again[the_older_state]",
            "tests/state/test_plan.py"
            "::test_an_object_that_a_plan_found_live_at_the_same_time_waits_again[the_older_state_that_read_the_other]",
        ),
    ),
    Mutation(
        name="the time at which a concurrent plan began to read counts as the time at which it had read",
        breaks="only objects that every plan since then names are deleted (invariant 5)",
        file="retention_assets/state/memory.py",
        old="        seen_until = made_at_name(min(max(read_at) + _LONGEST_READ, plan.made_at))\n",
        new="        seen_until = seen_at\n",
        caught_by=(
            "tests/state/test_memory.py::test_what_a_plan_found_live_at_the_end_of_its_reading_counts_at_the_same_time",
        ),
    ),
    Mutation(
        name="a sweep does not check its settings again",
        breaks="an approval binds the mode and the settings (invariant 12)",
        file="retention_assets/sweep/sweep_run.py",
        old="    require_same_settings(plan, opened.repository)\n",
        new="",
        caught_by=(
            "tests/end_to_end/test_changed_policy.py"
            "::test_a_sweep_of_lakefs_ends_when_a_setting_or_the_policy_is_changed_between_two_batches[mode]",
        ),
    ),
    Mutation(
        name="a sweep does not check the policies of other repositories again",
        breaks="objects that another repository refers to are not deleted",
        file="retention_assets/repositories/other_repositories.py",
        old="                self._require_unchanged(other)\n",
        new="",
        caught_by=(
            "tests/sweep/test_references_of_others.py"
            "::test_a_sweep_ends_if_the_policy_or_a_setting_of_the_other_repository_is_changed_between_two_batches"
            "[at_rest-the_policy]",
        ),
    ),
    Mutation(
        name="a sweep does not check for a newer plan",
        breaks="every plan since then names a deleted object (invariant 5)",
        file="retention_assets/sweep/engine.py",
        old="        still_named = named_since(self._spark, self._warehouse, self._plan)\n",
        new="        still_named = None\n",
        caught_by=(
            "tests/sweep/test_engine.py::test_an_object_that_the_newest_plan_of_another_day_does_not_name_is_skipped",
        ),
    ),
    Mutation(
        name="a table of the driver has the name of the table that it replaces",
        breaks="a plan is made from the tables that it opened",
        file="retention_assets/warehouse/warehouse.py",
        old='f"part-00000-{uuid4().hex}.parquet"',
        new="PART",
        caught_by=(
            "tests/warehouse/test_warehouse.py::test_spark_does_not_read_a_table_that_replaced_the_opened_table",
        ),
    ),
    Mutation(
        name="cached rows of a table are used for the table that replaced it",
        breaks="rows that were read before a table changed are not used afterwards (invariants 1 and 8)",
        file="retention_assets/spark/frames.py",
        old='    return spark.read.option("retention.opened", uuid4().hex).option(',
        new="    return spark.read.option(",
        caught_by=(
            "tests/spark/test_frames.py"
            "::test_a_frame_that_is_opened_again_does_not_use_the_cached_rows[names_in_table]",
            "tests/spark/test_frames.py::test_a_frame_that_is_opened_again_does_not_use_the_cached_rows[in_ledger]",
        ),
    ),
    Mutation(
        name="workers continue without the lease",
        breaks="nothing is changed after the lease is lost",
        file="retention_assets/sweep/worker.py",
        old="holds(warehouse, task.lease, clock()) and clock() < task.deadline\n",
        new="clock() < task.deadline\n",
        caught_by=(f"{_LOST_LEASE}[stop_all_sweeps]", f"{_LOST_LEASE}[let_the_lease_expire]"),
    ),
    Mutation(
        name="other threads delete while one asks about the lease",
        breaks="nothing is changed after the lease is lost",
        file="retention_assets/objectstore/mutate/deletion.py",
        old="                    self._poll()\n",
        new="                    self._polled_at = now\n                    self._poll()\n",
        also=(("            with self._polling:", "            if True:"),),
        caught_by=tuple(
            "tests/objectstore/test_deletion_work.py"
            f"::test_no_thread_sends_a_request_while_the_deadline_is_checked[{each}]"
            for each in ("one_by_one", "in_bulk")
        ),
    ),
    Mutation(
        name="the client sends a failed deletion again",
        breaks="nothing is changed after the lease is lost",
        file="retention_assets/objectstore/mutate/deletion.py",
        old="access.open(retrying=False, timeout",
        new="access.open(timeout",
        caught_by=tuple(
            "tests/objectstore/test_deletion.py::TestRetriesOfTheClient"
            f"::test_a_deletion_that_fails_is_not_sent_again_before_the_deadline_is_checked[{each}]"
            for each in ("azure", "gcs")
        ),
    ),
    Mutation(
        name="a signed request is sent without asking about the lease again",
        breaks="nothing is changed after the lease is lost",
        file="retention_assets/objectstore/mutate/deletion_s3.py",
        old='        self._bucket.client.meta.events.register("before-send.s3", self._before_send)\n',
        new="",
        caught_by=tuple(
            "tests/objectstore/test_deletion_faults.py::TestConditions"
            f"::test_a_request_that_was_signed_before_a_suspension_is_not_sent_after_the_lease_is_lost[{each}]"
            for each in ("in_bulk", "alone")
        ),
    ),
    Mutation(
        name="the body of a request is sent without asking about the lease again",
        breaks="nothing is changed after the lease is lost",
        file="retention_assets/objectstore/mutate/deletion_s3.py",
        old="            request.body = _Body(request.body, self._permission)\n",
        new="            pass\n",
        caught_by=(
            "tests/objectstore/test_deletion_faults.py::TestConditions"
            "::test_a_request_whose_headers_were_sent_before_a_suspension_is_not_completed_after_the_lease_is_lost",
        ),
    ),
    Mutation(
        name="a deletion without a condition follows a rejected one at once",
        breaks="nothing is changed after the lease is lost",
        file="retention_assets/objectstore/mutate/deletion_s3.py",
        old="            if not may_send(1):\n",
        new="            if False:\n",
        also=(
            ("            if not may_send(len(to_delete)):\n", "            if False:\n"),
            ('        self._bucket.client.meta.events.register("before-send.s3", self._before_send)\n', ""),
        ),
        caught_by=tuple(
            "tests/objectstore/test_deletion_faults.py::TestConditions"
            f"::test_after_the_deadline_no_request_without_conditions_follows_a_rejected_one[{each}]"
            for each in ("in_bulk", "alone")
        ),
    ),
    Mutation(
        name="a sweep ends well although another run took its lease",
        breaks="a run whose lease was taken does not write the newest record of the plan",
        file="retention_assets/sweep/execute.py",
        old="        require_not_taken_over(run.warehouse, lease)\n",
        new="",
        caught_by=(f"{_OVERTAKEN}[with_a_record_of_it]", f"{_OVERTAKEN}[without_a_record_of_it]"),
    ),
    Mutation(
        name="objects of a worker that may still run are restored once a later sweep recorded them",
        breaks="a worker of an interrupted sweep deletes no restored object",
        file="retention_assets/sweep/copies.py",
        old='.withColumn("open_at", open_at)',
        new='.withColumn("open_at", F.lit(None).cast("timestamp"))',
        caught_by=(
            "tests/sweep/test_undo.py"
            "::test_objects_that_a_suspended_run_may_still_process_are_not_restored_although_another_run_recorded_them",
        ),
    ),
    Mutation(
        name="workers continue after the deadline",
        breaks="nothing is deleted later than the window after its liveness check (invariant 5)",
        file="retention_assets/sweep/worker.py",
        old="holds(warehouse, task.lease, clock()) and clock() < task.deadline\n",
        new="holds(warehouse, task.lease, clock())\n",
        caught_by=("tests/sweep/test_worker.py::test_objects_left_at_the_deadline_have_no_row",),
    ),
    Mutation(
        name="objects are not recorded before they are deleted",
        breaks="after a crash it is known which objects may be deleted (invariant 8)",
        file="retention_assets/sweep/worker.py",
        old='    _recorded(task, chunk, attempted, name, clock(), "attempted")\n',
        new="    task.ledger.rows(chunk, attempted, clock())\n",
        caught_by=("tests/sweep/test_worker.py::test_the_ledger_has_rows_before_and_after_each_chunk",),
    ),
    Mutation(
        name="a key that a bulk deletion refused counts as deleted",
        breaks="the ledger has deleted only for objects that the store reported as deleted (invariant 9)",
        file="retention_assets/objectstore/mutate/deletion_s3.py",
        old="            results |= dict.fromkeys(_targets_of(by_key, entry), _result(failure))\n",
        new="            results |= dict.fromkeys(_targets_of(by_key, entry), DELETED)\n",
        caught_by=(
            "tests/objectstore/test_deletion_faults.py::TestErrorsOfSingleKeys"
            "::test_each_key_that_keeps_failing_has_the_code_of_the_store",
        ),
    ),
    Mutation(
        name="a key that a bulk deletion did not name counts as deleted",
        breaks="the ledger has deleted only for objects that the store reported as deleted (invariant 9)",
        file="retention_assets/objectstore/mutate/deletion_s3.py",
        old="results.get(one, ObjectResult.failed(_UNNAMED))",
        new="results.get(one, DELETED)",
        caught_by=(
            "tests/objectstore/test_deletion_faults.py::TestLostResponses"
            "::test_an_object_that_a_bulk_response_omits_does_not_count_as_deleted",
        ),
    ),
    Mutation(
        name="a copy is not compared with its original",
        breaks="an object leaves the repository only after its copy was verified",
        file="retention_assets/objectstore/mutate/copying.py",
        old="        if have_same_md5(found, there):\n            return SIZE_AND_ETAG\n",
        new="        return SIZE_AND_ETAG\n",
        caught_by=(
            "tests/objectstore/test_copying.py::TestVerificationOfTheCopy"
            "::test_a_copy_that_differs_from_its_source_has_failed",
        ),
    ),
    Mutation(
        name="Icechunk: a snapshot that is reachable again is released",
        breaks="edits release no snapshot that a branch or tag reaches at that time",
        file="retention_assets/icechunk/edits/publishing.py",
        old="reachable(after, after.tips()) & _to_delete(planned)\n",
        new="reachable(after, after.tips()) & frozenset()\n",
        caught_by=(
            "tests/icechunk/sweep/test_publishing.py::test_a_tag_on_a_snapshot_to_release_refuses_the_plan[c-format_2]",
        ),
    ),
    Mutation(
        name="Icechunk: a branch that was created again since the plan is deleted",
        breaks="a sweep deletes no branch or tag whose deletion nobody approved",
        file="retention_assets/icechunk/edits/publishing.py",
        old="planned.deleted - new)",
        new="planned.deleted)",
        caught_by=tuple(
            "tests/icechunk/sweep/test_publishing.py"
            f"::test_a_branch_created_again_after_another_plan_removed_it_stays_and_is_named[{each}]"
            for each in ("format_1", "format_2")
        ),
    ),
    Mutation(
        name="Icechunk: a branch to delete is identified only by its name",
        breaks="a branch that was moved since the plan is not deleted",
        file="retention_assets/icechunk/rules/planned.py",
        old="    approved = {one.deletion for one in planned.deleted}\n",
        new="    names = {(one.kind, one.name) for one in planned.deleted}\n"
        "    approved = {one for one in expiration.deletions if (one.kind, one.name) in names}\n",
        caught_by=(
            "tests/icechunk/sweep/test_publishing.py"
            "::test_a_branch_that_moved_to_a_snapshot_that_stays_is_not_deleted[format_2]",
        ),
    ),
    Mutation(
        name="Icechunk: a file that was acknowledged as lost is never read again",
        breaks="objects that a restored file references stay (invariant 5)",
        file="retention_assets/state/acknowledged.py",
        old='    missing = found.where("last_modified IS NULL").select("address").toArrow()',
        new='    missing = found.select("address").toArrow()',
        caught_by=(
            "tests/icechunk/sweep/test_sweeping.py"
            "::test_a_file_that_was_acknowledged_as_lost_and_came_back_is_read[format_1]",
        ),
    ),
    Mutation(
        name="Icechunk: the repository is edited although its objects cannot be deleted",
        breaks="a repository in the bucket of the endpoint is not edited in place of the configured one",
        file="retention_assets/objectstore/mutate/writing.py",
        old="        if self._access.is_s3:\n            _ = self._bucket\n",
        new="",
        caught_by=(
            "tests/objectstore/test_replacing.py"
            "::test_an_endpoint_of_another_bucket_is_refused_before_the_first_conditional_write",
        ),
    ),
    Mutation(
        name="Icechunk: a rule applies only to the name as it is written in the rule",
        breaks="a snapshot that a rule keeps stays, also if the repository spells the name otherwise",
        file="retention_assets/policy/matching.py",
        old="    return chosen + otherwise, ",
        new="    return chosen, ",
        caught_by=(
            "tests/icechunk/sweep/test_names.py"
            "::test_a_rule_for_a_tag_keeps_its_history_also_if_the_name_is_spelled_otherwise[format_2]",
        ),
    ),
    Mutation(
        name="Icechunk: the repository is edited in a store that ignores conditions",
        breaks="no commit of a writer is lost",
        file="retention_assets/cli/icechunk.py",
        old='        ObjectWriter(access).require_conditions()\n        return {"conflicts"',
        new='        return {"conflicts"',
        caught_by=("tests/cli/test_icechunk.py::test_nothing_is_changed_in_a_store_that_ignores_conditions[branch]",),
    ),
    Mutation(
        name="Icechunk: a person changes the repository without the lease",
        breaks="a change by a person and a sweep of one repository do not run at once",
        file="retention_assets/icechunk/administration/operations.py",
        old="result = change(_Renewed(warehouse, lease, clock))",
        new="result = change(lambda: None)",
        caught_by=tuple(
            f"tests/cli/test_icechunk.py::test_a_change_that_lost_its_lease_writes_nothing[{each}]"
            for each in ("branch_of_format_1", "tag_of_format_2", "status", "upgrade")
        ),
    ),
    Mutation(
        name="Icechunk: a branch is deleted in a request whose condition servers ignore",
        breaks="no commit of a writer is lost (promise 13)",
        file="retention_assets/objectstore/mutate/writing.py",
        old="ObjectDeleter(self._access, in_bulk=False, ",
        new="ObjectDeleter(self._access, ",
        caught_by=(
            "tests/icechunk/sweep/test_races.py"
            "::test_a_commit_just_before_the_request_that_deletes_a_branch_keeps_the_branch[format_1]",
        ),
    ),
    Mutation(
        name="Icechunk: a file that was read is changed without asking about the lease again (format 1)",
        breaks="nothing is changed after the lease is lost",
        file="retention_assets/icechunk/edits/format_1.py",
        old="        self._writer = ObjectWriter(access, before_write)\n        self._references",
        new="        self._writer = ObjectWriter(access)\n        self._references",
        caught_by=(
            "tests/icechunk/sweep/test_races.py"
            "::test_a_lease_that_is_lost_after_a_file_was_read_ends_the_edits_before_that_file_is_changed"
            "[a_snapshot-format_1]",
        ),
    ),
    Mutation(
        name="Icechunk: a branch is deleted without asking about the lease again (format 1)",
        breaks="nothing is changed after the lease is lost",
        file="retention_assets/objectstore/mutate/writing.py",
        old="            self._before_write()\n            found",
        new="            found",
        caught_by=(
            "tests/icechunk/sweep/test_races.py"
            "::test_a_lease_that_is_lost_after_a_file_was_read_ends_the_edits_before_that_file_is_changed"
            "[the_file_of_a_branch-format_1]",
        ),
    ),
    Mutation(
        name="Icechunk: a branch that came back during the edits is deleted (format 1)",
        breaks="nobody approved the deletion of a branch that was created again (promise 5)",
        file="retention_assets/icechunk/edits/format_1.py",
        old="written_before is not None and metadata.last_modified >= written_before:",
        new="False:",
        caught_by=(
            "tests/icechunk/sweep/test_races.py"
            "::test_a_branch_that_comes_back_after_the_edits_were_computed_is_not_deleted[created_again-format_1]",
        ),
    ),
    Mutation(
        name="Icechunk: a repository whose repo object was lost is read as format 1",
        breaks="unreadable references end a plan (invariant 3)",
        file="retention_assets/icechunk/source/repository.py",
        old="            self._require_no_backup()\n",
        new="",
        caught_by=(
            "tests/icechunk/source/test_repository.py"
            "::test_a_lost_repo_object_is_not_taken_for_format_1_although_an_upgrade_left_old_files",
        ),
    ),
    Mutation(
        name="Icechunk: a branch or tag that was just made is deleted",
        breaks="a session that is younger than `grace` can commit (invariant 2)",
        file="retention_assets/icechunk/sweep/retained_set.py",
        old="for one, at in state.moved.items() if at >= cutoff",
        new="for one, at in state.moved.items() if False",
        caught_by=tuple(
            f"tests/icechunk/sweep/test_left_tips.py"
            f"::test_a_reference_is_not_deleted_within_the_grace_period_after_it_was_made_or_moved[{file_format}-{made}]"
            for made in ("branch new", "branch dev", "tag new")
            for file_format in ("format_1", "format_2")
        ),
    ),
    Mutation(
        name="Icechunk: a tag whose file was lost counts as deleted",
        breaks="unreadable references end a plan (invariant 3)",
        file="retention_assets/icechunk/sweep/left_tips.py",
        old="        _require_no_lost_tag(state, heads, made_at, repository)\n",
        new="",
        caught_by=(
            "tests/icechunk/sweep/test_left_tips.py"
            "::test_a_tag_without_its_file_is_not_taken_for_a_deleted_tag[format_1]",
        ),
    ),
    Mutation(
        name="a run that is interrupted writes no record",
        breaks="every run that changed something has a record (promise 12)",
        file="retention_assets/sweep/execute.py",
        old="    except BaseException as error:  # also",
        new="    except Exception as error:  # also",
        caught_by=("tests/sweep/test_execute_plan.py::test_a_sweep_that_is_interrupted_has_a_record",),
    ),
    Mutation(
        name="old names count in a repository that only newer servers wrote",
        breaks="files of other systems are never deleted (invariant 10)",
        file="retention_assets/lakefs/sweep/guards.py",
        old="kinds_in_use(entries()) if has_older(times, NEW_NAMES) else frozenset()",
        new="kinds_in_use(entries())",
        caught_by=(
            "tests/lakefs/sweep/test_guards.py"
            "::test_a_planned_name_of_a_kind_that_no_entry_has_is_refused_before_a_sweep",
        ),
    ),
)

KNOWING = (
    Mutation(
        name="names of legacy kinds always belong to the repository",
        breaks="a name of a legacy kind belongs to the repository only if an entry has such a name (invariant 10)",
        file="retention_assets/lakefs/names/legacy.py",
        old="    return is_generated(address) & ~_is_old(address, KINDS.difference(legacy))\n",
        new="    return is_generated(address)\n",
        caught_by=(
            "tests/lakefs/names/test_legacy_names.py"
            "::test_a_legacy_name_belongs_to_the_repository_only_if_its_kind_is_in_use[none]",
        ),
    ),
    Mutation(
        name="a file that a client staged by its full address shows that legacy names belong to the repository",
        breaks="foreign files are never deleted (invariant 10)",
        file="retention_assets/lakefs/names/legacy.py",
        old='    row = entries.where(F.col("address_type") != FULL).agg(*kinds_counted()).collect()[0]\n',
        new="    row = entries.agg(*kinds_counted()).collect()[0]\n",
        caught_by=(
            "tests/lakefs/names/test_legacy_names.py"
            "::test_a_file_that_a_client_staged_by_its_full_address_makes_no_kind_of_legacy_names_its_own",
            "tests/lakefs/sweep/test_guards.py"
            "::test_a_planned_name_of_a_kind_that_no_entry_has_is_refused_before_a_sweep",
        ),
    ),
    Mutation(
        name="addresses have superfluous slashes and dots if their namespace has them",
        breaks="an object that a client staged by its plain address stays (invariant 1)",
        file="retention_assets/lakefs/names/generated.py",
        old=" or resolved_path(location) != location\n",
        new="\n",
        caught_by=(
            "tests/lakefs/names/test_names.py"
            "::test_a_namespace_has_other_spellings_if_a_url_escapes_it_or_a_store_resolves_it[s3://lake//orchard-True]",
        ),
    ),
    Mutation(
        name="a location with a user before its bucket is another location",
        breaks="the objects of another repository in the same location stay (invariant 6)",
        file="retention_assets/config/locations.py",
        old='        host = host.rpartition("@")[2]\n',
        new="        pass\n",
        caught_by=(
            "tests/lakefs/sweep/test_guards.py"
            "::test_locations_are_compared_in_the_form_in_which_they_are_opened[a_user_before_the_bucket]",
        ),
    ),
    Mutation(
        name="an option of the store names another location than the URL",
        breaks="the objects of another repository in the same location stay (invariant 6)",
        file="retention_assets/objectstore/access.py",
        old="            self._require_location_of_url(store.config)\n",
        new="",
        caught_by=(
            "tests/objectstore/test_access.py::test_an_option_that_names_another_location_than_the_url_is_refused[s3]",
        ),
    ),
    Mutation(
        name="an object that another repository references is a candidate",
        breaks="an object that another configured repository references stays (invariant 6)",
        file="retention_assets/core/other_references.py",
        old='    stays = F.col("is_referenced").isNotNull() & (F.col("state") == CANDIDATE)\n',
        new="    stays = F.lit(False)\n",
        caught_by=("tests/core/test_other_references.py::test_only_candidates_get_the_state_held",),
    ),
    Mutation(
        name="one acknowledged loss covers all other losses",
        breaks="a live address that nobody acknowledged as lost must be listed (invariant 7)",
        file="retention_assets/core/guards.py",
        old="    is_missing = ~was_collected & ~is_lost\n",
        new="    is_missing = F.lit(False)\n",
        caught_by=(
            "tests/lakefs/sweep/test_guards.py"
            "::test_a_live_address_that_is_acknowledged_as_lost_is_counted_and_a_new_one_refuses",
        ),
    ),
    Mutation(
        name="a batch of the cache disappears unnoticed",
        breaks="unknown is not zero: rows that a run has looked up must still exist when it reads them (invariant 3)",
        file="retention_assets/warehouse/table_cache.py",
        old="        if gone := [batch.name for batch in batches if batch.name not in there]:\n",
        new="        if gone := [batch.name for batch in batches[:0] if batch.name not in there]:\n",
        caught_by=(
            "tests/warehouse/test_table_cache.py"
            "::test_a_batch_that_is_removed_while_a_run_fetches_other_files_ends_the_run[on_the_driver]",
        ),
    ),
    Mutation(
        name="references of a repository that was restored to an older state are complete",
        breaks="an object that another configured repository references stays (invariant 6)",
        file="retention_assets/repositories/other_repositories.py",
        old="    unread, replaced = chunks.unread + manifests.unread, manifests.replaced or chunks.replaced\n",
        new="    unread, replaced = chunks.unread + manifests.unread, chunks.replaced\n",
        caught_by=(
            "tests/sweep/test_references_of_icechunk.py"
            "::test_references_of_a_newer_state_are_unknown_after_an_older_repo_object_was_put_in_its_place[of_manifests]",
        ),
    ),
    Mutation(
        name="a plan does not warn that a guard refused the last plan of another repository",
        breaks="a plan tells why its sweep will be refused",
        file="retention_assets/repositories/other_repositories.py",
        old="        if table.refused:\n",
        new="        if False:\n",
        caught_by=(
            "tests/sweep/test_references_of_others.py"
            "::test_a_sweep_refuses_while_a_table_of_which_no_plan_was_made_is_replaced[a_guard_refused_it]",
        ),
    ),
    Mutation(
        name="manifests of an interrupted plan are used",
        breaks="an object that another configured repository references stays (invariant 6)",
        file="retention_assets/repositories/other_repositories.py",
        old="    details = chunks.details if len(of_both) == 1 else Details()\n",
        new="    details = chunks.details if of_both else Details()\n",
        caught_by=(
            "tests/sweep/test_references_of_icechunk.py"
            "::test_every_manifest_counts_if_a_plan_under_another_policy_or_setting_was_interrupted[policy_hash]",
        ),
    ),
    Mutation(
        name="references at an earlier location of a repository are used",
        breaks="an object that another configured repository references stays (invariant 6)",
        file="retention_assets/state/approval.py",
        old='if name != "storage" or "namespace" not in terms}\n',
        new='if name != "storage"}\n',
        caught_by=(
            "tests/sweep/test_references_of_icechunk.py"
            "::test_references_at_another_location_are_unknown_until_a_plan_reads_them",
        ),
    ),
)

_COPIES = "tests/sweep/test_copies.py"
_RECORDS = "tests/state/test_records.py"

KEEPING_BOOKS = (
    Mutation(
        name="any object at the path of a live object counts as the object",
        breaks="a purge keeps the last copy of a live object",
        file="retention_assets/sweep/undo_engine.py",
        old='        without = copies.join(there, on=["address", "size"], how="left_anti")\n',
        new='        without = copies.join(there.where("size IS NOT NULL"), on="address", how="left_anti")\n',
        caught_by=("tests/sweep/test_undo.py::test_objects_that_are_live_again_and_missing_are_not_purged",),
    ),
    Mutation(
        name="a purge leaves the versions of a copy",
        breaks="a copy with the outcome purged is no longer stored",
        file="retention_assets/sweep/purges.py",
        old="        if not self.keeps_versions:\n",
        new="        if self.location:\n",
        caught_by=(
            f"{_COPIES}::test_after_a_purge_a_bucket_that_keeps_versions_stores_nothing_of_the_quarantine[moto]",
        ),
    ),
    Mutation(
        name="a plan from a dump deletes what an old server staged",
        breaks="no staged object is a candidate",
        file="retention_assets/lakefs/sweep/planning.py",
        old="    if planned is None and references.hides_old_objects(of_dump=parameters.of_dump):\n",
        new="    if planned is not None and references.hides_old_objects(of_dump=parameters.of_dump):\n",
        caught_by=(
            "tests/lakefs/names/test_legacy_names.py"
            "::test_what_an_old_server_staged_is_not_deleted_because_a_dump_does_not_show_it[a_dump_of_an_old_repository]",
        ),
    ),
    Mutation(
        name="only the current version of a copy is compared before a purge deletes all versions",
        breaks="a purge keeps the last copy of a live object",
        file="retention_assets/sweep/purges.py",
        old="        return [one for one in self.versions.get(path, ()) if not one.is_delete_marker]\n",
        new="        return [one for one in self.versions.get(path, ()) if one.is_current]\n",
        caught_by=(
            "tests/sweep/test_quarantining.py"
            "::test_each_version_of_a_copy_is_compared_with_the_original[an_older_version_differs]",
        ),
    ),
    Mutation(
        name="the originals are not looked up again after the comparison",
        breaks="a purge keeps the last copy of a live object",
        file="retention_assets/sweep/purges.py",
        old="            is_unchanged = self.originals.head(address) == compared\n",
        new="            is_unchanged = True\n",
        caught_by=(
            "tests/sweep/test_quarantining.py"
            "::test_a_copy_stays_if_its_original_changes_while_the_other_copies_are_compared",
        ),
    ),
    Mutation(
        name="the original is deleted also if it is no longer the object that was copied",
        breaks="an object leaves the repository only after its copy was verified",
        file="retention_assets/sweep/actions.py",
        old="        copied = [DeleteTarget(address, copy.e_tag) for",
        new="        copied = [DeleteTarget(address) for",
        caught_by=(
            "tests/sweep/test_quarantining.py"
            "::test_an_object_that_is_exchanged_after_its_copy_stays_although_the_plan_has_no_etag",
        ),
    ),
    Mutation(
        name="objects of a worker of another plan that may still run are restored",
        breaks="a worker of an interrupted sweep deletes no restored object",
        file="retention_assets/sweep/copies.py",
        old='Window.partitionBy("address")))  # of all plans',
        new='Window.partitionBy("folder", "address")))  # of all plans',
        caught_by=tuple(
            f"{_COPIES}::test_an_object_that_a_suspended_run_of_another_plan_may_still_process_is_not_restored[{each}]"
            for each in ("swept", "restored_before")
        ),
    ),
    Mutation(
        name="only objects with the outcome quarantined in a ledger are in quarantine",
        breaks="every copy in quarantine is shown, restored or purged",
        file="retention_assets/sweep/copies.py",
        old='        .where("recorded OR has_copy")\n',
        new='        .where("recorded")\n',
        caught_by=(
            f"{_COPIES}::test_copies_of_one_object_under_two_plans_go_together_and_none_is_left",
            f"{_COPIES}::test_a_copy_whose_object_is_still_at_its_path_is_surplus_and_is_purged_once_no_sweep_processes_it",
        ),
    ),
    Mutation(
        name="a missing object counts as missing without a check of the quarantine of an interrupted sweep",
        breaks="no object that a sweep moved is called missing",
        file="retention_assets/sweep/preconditions.py",
        old='                problem = "" if has_manifest else "this plan has no files there"\n',
        new='                problem = ""\n',
        caught_by=(
            "tests/sweep/test_preconditions.py::"
            "test_a_missing_object_that_an_interrupted_sweep_may_have_moved_is_looked_up_where_that_sweep_moved_it",
        ),
    ),
    Mutation(
        name="the versions of an object are deleted while an unrecorded copy of the object is in quarantine",
        breaks="the versions of an object in quarantine are deleted only after its copy was purged",
        file="retention_assets/sweep/copies.py",
        old='        moved = found.rows.where("NOT surplus")',
        new='        moved = found.rows.where("recorded")',
        caught_by=(
            "tests/sweep/test_undo.py::"
            "test_versions_stay_while_a_copy_that_an_interrupted_sweep_did_not_record_is_in_quarantine",
        ),
    ),
    Mutation(
        name="threads of a suspended run delete the local files that they were about to delete",
        breaks="a run that lost its lease deletes nothing more (promise 6)",
        file="retention_assets/objectstore/mutate/deletion.py",
        old=" if may_send(0) else NOT_REQUESTED",
        new="",
        caught_by=(
            "tests/objectstore/test_deletion.py::TestSuspension"
            "::test_no_thread_of_a_suspended_run_deletes_the_local_file_that_it_was_about_to_delete",
        ),
    ),
    Mutation(
        name="staged references of another repository do not count if no commit has one",
        breaks="objects that another repository refers to stay",
        file="retention_assets/repositories/other_repositories.py",
        old="        if staged and staged.details.outside != 0:\n",
        new="        if staged and table.details.outside != 0:\n",
        caught_by=(
            "tests/sweep/test_references_of_others.py"
            "::test_a_table_is_not_read_if_its_plan_counted_no_reference_to_objects_of_others[0-1-6]",
        ),
    ),
    Mutation(
        name="the count of an earlier run counts for manifests that a later run wrote",
        breaks="objects that another repository refers to stay",
        file="retention_assets/repositories/other_repositories.py",
        old="    if manifests.run_id != chunks.run_id:\n",
        new="    if False:\n",
        caught_by=(
            "tests/sweep/test_references_of_icechunk.py"
            "::test_manifests_are_not_read_if_their_plan_counted_no_virtual_reference",
        ),
    ),
    Mutation(
        name="a purge ignores what runs of other plans changed since it determined what is due",
        breaks="a copy with the outcome purged is no longer stored (invariant 12)",
        file="retention_assets/sweep/undo_engine.py",
        old="        if self._known_sweeps is not None and (",
        new="        if self._known_sweeps is not None and not self._live and (",
        caught_by=(
            "tests/sweep/test_copies.py::"
            "test_an_object_that_a_sweep_of_another_plan_moved_after_it_was_found_due_is_not_purged[copies]",
        ),
    ),
    Mutation(
        name="a restore takes any object at the path for the lost copy",
        breaks="a restored object has the bytes of its copy",
        file="retention_assets/sweep/actions.py",
        old="        except ObjectMissing:\n            raise StoreError(\n",
        new="        except ObjectMissing:\n            return True\n            raise StoreError(\n",
        caught_by=(
            "tests/sweep/test_undo.py::test_a_restore_does_not_take_an_object_at_the_path_for_a_lost_copy[same_size]",
        ),
    ),
    Mutation(
        name="a purge deletes the manifests of a plan with objects in quarantine",
        breaks="a lost copy is told from a quarantine that is not mounted",
        file="retention_assets/sweep/undo.py",
        old=" if plan not in unpurged]",
        new="]",
        caught_by=("tests/sweep/test_copies.py::test_manifests_stay_until_the_ledger_has_no_object_in_quarantine",),
    ),
    Mutation(
        name="a branch may be reset to an existing commit while branches and tags are read",
        breaks="a commit that a branch or tag names is live (invariant 1)",
        file="retention_assets/core/heads.py",
        old="        at = None if at in known else main_parent(at)\n",
        new="        at = main_parent(at)\n",
        caught_by=("tests/core/test_heads.py::test_only_new_commits_move_a_branch_on[reset_to_a_descendant]",),
    ),
    Mutation(
        name="a reading of the branches that has more than the one before counts as the same",
        breaks="a commit that a branch or tag names is live (invariant 1)",
        file="retention_assets/lakefs/source/api.py",
        old="            if readings[-1] == readings[-2]:\n",
        new='            if readings[-2]["branches"].items() <= readings[-1]["branches"].items():\n',
        caught_by=(
            "tests/lakefs/source/test_api.py::TestReferences::test_a_new_branch_makes_another_reading_necessary",
        ),
    ),
    Mutation(
        name="a reference of format 1 may be written while it is read",
        breaks="a snapshot that a branch or tag names is live (invariant 1)",
        file="retention_assets/icechunk/source/repository.py",
        old="    return content, listed.e_tag in (None, metadata.e_tag)\n",
        new="    return content, True\n",
        caught_by=(
            "tests/icechunk/source/test_repository.py::"
            "test_a_branch_that_was_moved_and_moved_back_while_it_was_read_is_read_again[True]",
        ),
    ),
    Mutation(
        name="a copy counts as purged although its quarantine is not mounted",
        breaks="a copy with the outcome purged is no longer stored (invariant 12)",
        file="retention_assets/sweep/undo.py",
        old="& ~is_here & (~is_moved_here | is_empty)\n",
        new="& ~is_here & ~is_moved_here\n",
        caught_by=("tests/sweep/test_undo.py::test_copies_are_not_purged_while_their_quarantine_is_not_mounted",),
    ),
    Mutation(
        name="objects that are acknowledged as lost refuse every plan",
        breaks="plans continue without objects that a person acknowledged as lost (invariant 7)",
        file="retention_assets/core/guards.py",
        old='    is_lost = ~was_collected & F.col("was_acknowledged").isNotNull()\n',
        new="    is_lost = F.lit(False)\n",
        caught_by=(
            "tests/lakefs/sweep/test_guards.py"
            "::test_a_live_address_that_is_acknowledged_as_lost_is_counted_and_a_new_one_refuses",
        ),
    ),
    Mutation(
        name="any signature of a record is accepted",
        breaks="a person with write access to the warehouse and without the key cannot rewrite signed records",
        file="retention_assets/sweep/verification.py",
        old='        if document.get("repository") != inputs.name or not seal.verifies(document):\n',
        new='        if document.get("repository") != inputs.name:\n',
        caught_by=(
            f"{_RECORDS}::test_a_rewritten_signed_chain_is_detected[changed]",
            f"{_RECORDS}::test_a_record_with_the_signature_of_another_key_is_detected",
        ),
    ),
    Mutation(
        name="missing copies of records are not detected",
        breaks="a removed last record is detected if the witness has a copy of the record",
        file="retention_assets/sweep/verification.py",
        old="    lost = copies - records\n",
        new="    lost = copies - copies\n",
        caught_by=(
            f"{_RECORDS}::test_the_witness_shows_a_rewrite_of_a_chain_that_looks_unbroken[the_end_removed]",
            f"{_RECORDS}::test_the_witness_shows_a_rewrite_of_a_chain_that_looks_unbroken[all_removed]",
        ),
    ),
    Mutation(
        name="housekeeping keeps the days of plans with objects in quarantine",
        breaks="nothing that a person may still need is removed from the warehouse",
        file="retention_assets/repositories/housekeeping.py",
        old="frozenset(day for day, _ in [*quarantined, *unfinished])",
        new="frozenset(day for day, _ in unfinished)",
        caught_by=(
            "tests/warehouse/test_housekeeping.py"
            "::test_the_day_of_a_plan_with_objects_in_quarantine_stays_until_they_are_purged",
        ),
    ),
    Mutation(
        name="housekeeping removes a directory with the files that a plan has written into it since",
        breaks="files that are newer than the listing of housekeeping stay",
        file="retention_assets/repositories/housekeeping.py",
        old="warehouse.remove_files(unique, *parts)",
        new="warehouse.remove_directory(*parts)",
        caught_by=(
            "tests/warehouse/test_housekeeping.py"
            "::test_a_table_that_is_made_again_while_its_removal_is_suspended_stays",
        ),
    ),
    Mutation(
        name="housekeeping keeps the tables with the newest data",
        breaks="the references of another repository are still known after housekeeping",
        file="retention_assets/repositories/housekeeping.py",
        old="            yield from (day for _, day in usable[-1:])\n"
        "            yield from [day for taken_at, day in usable if taken_at <= now + MARGIN][-1:]\n",
        new="            pass\n",
        caught_by=(
            "tests/warehouse/test_housekeeping.py"
            "::test_the_tables_with_the_newest_data_stay_on_whatever_day_they_are[False]",
        ),
    ),
    Mutation(
        name="the cache counts the rows of a file as it reads them back",
        breaks="a file in the cache has as many rows as were decoded (invariant 3)",
        file="retention_assets/warehouse/table_cache.py",
        old='        if any(decoded.get[one] != read_back.get[one] for one in (ROWS.name, "shares")):\n',
        new="        if decoded.get is None:\n",
        caught_by=(
            "tests/warehouse/test_table_cache.py::test_rows_that_cannot_be_read_back_are_not_used[on_executors]",
        ),
    ),
    Mutation(
        name="a quarantine that is not mounted is made again",
        breaks="an object leaves the repository only after it was copied to the quarantine (invariant 8)",
        file="retention_assets/state/quarantine.py",
        old="    if access.url in markers:\n        require_marker(access, markers[access.url])\n",
        new="",
        caught_by=(
            "tests/sweep/test_quarantine_of_executors.py"
            "::test_a_sweep_moves_nothing_below_the_mount_point_of_its_quarantine[an_empty_mount_point]",
            "tests/sweep/test_quarantine_of_executors.py"
            "::test_a_sweep_moves_nothing_below_the_mount_point_of_its_quarantine[nothing]",
        ),
    ),
    Mutation(
        name="no record need be signed after the key was set",
        breaks="records that are forged without the key are detected (promise 12)",
        file="retention_assets/sweep/verification.py",
        old="    if inputs.records and not signed and seal.signed_since and seal.signed_since < inputs.today:\n",
        new="    if False:\n",
        caught_by=(f"{_RECORDS}::test_a_chain_of_forged_records_that_claim_to_be_older_than_the_key_is_detected",),
    ),
    Mutation(
        name="no lease names the record of an acknowledgement",
        breaks="a change to the newest record is detected (promise 12)",
        file="retention_assets/state/acknowledged.py",
        old="    name_newest_record(warehouse, repository, ended)\n",
        new="",
        caught_by=(
            f"{_RECORDS}::test_a_change_of_the_newest_acknowledgement_is_detected[change_the_person]",
            f"{_RECORDS}::test_a_change_of_the_newest_acknowledgement_is_detected[remove_the_record]",
        ),
    ),
    Mutation(
        name="an acknowledgement ends the lease of a running sweep",
        breaks="a sweep holds its lease until it releases it",
        file="retention_assets/state/lease.py",
        old="        if in_force and not is_stopped:\n            return\n",
        new="",
        caught_by=(f"{_RECORDS}::test_an_acknowledgement_does_not_end_the_lease_of_a_run_or_a_stop[running]",),
    ),
    Mutation(
        name="lost objects need no record",
        breaks="objects that nobody acknowledged as lost are not accepted as lost (promise 12)",
        file="retention_assets/sweep/verification.py",
        old="    if not changed_entry(inputs.warehouse, inputs.name, documents):\n",
        new="    if True:\n",
        caught_by=(
            f"{_RECORDS}::test_a_change_of_the_newest_acknowledgement_is_detected[add_an_entry]",
            f"{_RECORDS}::test_a_change_of_the_newest_acknowledgement_is_detected[add_an_address_to_the_entry]",
            f"{_RECORDS}::test_a_change_of_the_newest_acknowledgement_is_detected[remove_the_entry]",
        ),
    ),
    Mutation(
        name="rows of other inputs are reused",
        breaks="a plan is made from what the repository is now (invariant 3)",
        file="retention_assets/state/reuse.py",
        old="known is not None and known.details.inputs == inputs and not known.details.refused",
        new="known is not None and not known.details.refused",
        caught_by=("tests/state/test_reuse.py::test_rows_of_other_or_unknown_inputs_are_not_reused[other_inputs]",),
    ),
    Mutation(
        name="rows that another run wrote meanwhile are reused",
        breaks="a plan is made from what the repository is now (invariant 3)",
        file="retention_assets/state/reuse.py",
        old="if is_whole and is_same:",
        new="if is_whole:",
        caught_by=(
            "tests/state/test_reuse.py::test_rows_that_another_run_of_the_same_day_replaces_are_not_reused[frame]",
        ),
    ),
    Mutation(
        name="rows are read under the metadata of another run",
        breaks="the tables of a plan have one origin (invariant 3)",
        file="retention_assets/warehouse/warehouse.py",
        old="return written is None or written == _digest_of(",
        new="return written is None or bool(written) or written == _digest_of(",
        caught_by=("tests/state/test_reuse.py::test_rows_of_another_run_than_the_metadata_are_not_read",),
    ),
    Mutation(
        name="a plan is stored although another run replaced a table that it read",
        breaks="the tables of a plan have one origin (invariant 3)",
        file="retention_assets/state/storing.py",
        old="for rows in self.made_from:",
        new="for rows in ():",
        caught_by=(
            "tests/assets/test_refusals.py"
            "::test_there_is_no_plan_if_another_run_replaced_a_table_from_which_it_was_made[addresses]",
        ),
    ),
    Mutation(
        name="rows are stored although another run replaced a table from which they were made",
        breaks="the tables of a plan have one origin (invariant 3)",
        file="retention_assets/assets/resources.py",
        old="for one in obj.made_from:",
        new="for one in ():",
        caught_by=(
            "tests/assets/test_refusals.py"
            "::test_rows_are_not_stored_if_another_run_replaced_a_table_from_which_they_were_made",
        ),
    ),
    Mutation(
        name="a write reports the files of another run as unknown",
        breaks="the tables of a plan have one origin (invariant 3)",
        file="retention_assets/warehouse/warehouse.py",
        old="if not written and any(",
        new="if not written and not any(",
        caught_by=("tests/warehouse/test_warehouse.py::test_a_write_whose_files_another_run_replaced_is_refused",),
    ),
    Mutation(
        name="rows of a damaged file are reused",
        breaks="a damaged table is computed again (invariant 3)",
        file="retention_assets/state/reuse.py",
        old="if is_whole and is_same:",
        new="if is_same:",
        caught_by=("tests/state/test_reuse.py::test_rows_that_may_be_others_are_not_reused[with_a_changed_byte]",),
    ),
    Mutation(
        name="a plan is reused although an input is older",
        breaks="an object that was live meanwhile is no candidate (invariant 10)",
        file="retention_assets/state/reuse.py",
        old="return is_same and inputs.is_not_before(self.inputs) and not is_due",
        new="return is_same and not is_due",
        caught_by=(
            "tests/state/test_reuse.py::test_a_plan_is_reused_until_an_object_or_an_input_changes[an_older_state]",
        ),
    ),
    Mutation(
        name="a plan is reused although another object is staged",
        breaks="a staged object is no candidate (invariant 1)",
        file="retention_assets/lakefs/sweep/planning.py",
        old="        staged=inputs.staged.details.digest,\n",
        new="",
        caught_by=(
            "tests/assets/test_same_inputs.py"
            "::test_a_lakefs_plan_from_other_inputs_is_computed[with_another_staged_object]",
        ),
    ),
)

_FULL_OF = "tests/random_histories/test_rounds.py::test_a_history_that_is_full_of_one_thing_loses_nothing"

ON_A_REAL_SERVER = (
    Mutation(
        name="an absolute address is outside, whatever the name at its end is",
        breaks="a generated name keeps its object whatever the spelling of the rest is (invariant 6)",
        file="retention_assets/lakefs/names/columns.py",
        old=".otherwise(F.regexp_extract(spelled, _NAME_OR_LAST, 0))\n",
        new=".otherwise(address)\n",
        also=(
            (
                "        reversed(namespace_urls),\n",
                "        reversed(namespace_urls[:0]),\n",
            ),
        ),
        caught_by=(f"{_FULL_OF}[linked]",),
    ),
    Mutation(
        name="an object with the content of a head is not kept",
        breaks="an object that was staged again with the same content stays (invariant 1)",
        file="retention_assets/lakefs/sweep/planning.py",
        old="    objects = keep_same_content(objects, hidden)\n",
        new="    objects = keep_same_content(objects, hidden.limit(0))\n",
        caught_by=(
            "tests/real_lakefs/test_nothing_live_is_lost.py"
            "::test_an_object_that_was_uploaded_again_with_the_same_content_stays[lakefs]",
        ),
    ),
    Mutation(
        name="nothing settles",
        breaks="an object that a running operation is about to reference stays (invariant 5)",
        file="retention_assets/core/settle.py",
        old="    waits = due & must_wait & ",
        new="    waits = F.lit(False) & due & must_wait & ",
        caught_by=(f"{_FULL_OF}[held]",),
    ),
    Mutation(
        name="references of another repository are not read",
        breaks="an object that another configured repository references stays (invariant 6)",
        file="retention_assets/repositories/other_repositories.py",
        old="self._of_commits)(other, table, policy))\n",
        new="self._of_commits)(other, table, policy).limit(0))\n",
        caught_by=(f"{_FULL_OF}[shared]",),
    ),
    Mutation(
        name="a page without rows is used as a complete list",
        breaks="a branch that is created again during a scan hides no staged object (invariant 3)",
        file="retention_assets/lakefs/source/staged_list.py",
        old="            if not any(self._for_each(self._shows_any, on_page)):\n                return response, []",
        new="            if response is not None:\n                return response, []",
        caught_by=(f"{_FULL_OF}[made again]",),
    ),
)

MUTATIONS = (*KEEPING, *HISTORY, *READING, *SWEEPING, *KNOWING, *KEEPING_BOOKS, *ON_A_REAL_SERVER)
