"""What `retention lint` finds beside the policy itself."""

from pathlib import Path

import pytest

from tests.end_to_end.approved import source
from tests.end_to_end.command import environment, orchard_on_disk, run
from tests.stores.lakefs_server import SECRET_KEY, serving
from tests.stores.lakefs_world import saved


@pytest.mark.parametrize(("grace", "warned"), [("1h", True), ("24h", False), ("3d", False)])
def test_a_grace_period_below_the_server_s_own_is_warned_of(tmp_path: Path, grace: str, warned: bool) -> None:
    place = orchard_on_disk(tmp_path)
    with serving(saved("orchard")) as server, environment(LAKEFS_SECRET=SECRET_KEY):
        place.write(source=source(server), staged=None, grace=grace)
        answer = run("--config", place.file, "lint", "orchard")
    assert answer.status == 0, answer.err
    told = " ".join(answer.out.split())
    assert ("grace is 1h, the server's own is 1d" in told or "grace is 1h, the server's own is 24h" in told) is warned
