"""A real lakeFS server for tests: skipped by name where no `lakefs` is on the PATH.

How to use it, in a test file of this folder (its conftest.py has the fixtures `lakefs`, `lakefs_on_s3`, `clock`):

    def test_a_staged_object_stays(lakefs: Server, spark: SparkSession, tmp_path: Path) -> None:
        repository = lakefs.new_repository("orchard")      # a name of its own, namespace and storage included
        repository.upload("main", "a", b"1")               # then commit, branch, tag, merge, revert, stage, link, …
        lakefs.clock.forward(days=2)                       # the server's time; lakefs.clock() returns it
        retention = Retention(tmp_path, repository, mode="delete", settle="0s")  # writes retention.yaml
        retention.plan_and_sweep()                         # or .plan(), .approve(), .sweep(), .verify(), .purge()
        assert repository.unreadable() == []               # every object of every branch, HEAD, tag, staging area

`retention.plan()` first gives the objects their age (`repository.age_objects()`), and plans as of the clock's day.
`retention.answers` has what each command printed. `Webhook` (fixture `hook`) holds commits and merges until it releases
them. The fixture `lakefs_on_s3` is the same over a bucket. `repository.stored()` lists the store without our own code.
"""
