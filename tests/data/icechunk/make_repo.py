"""Makes the repository of `repo-1.1.tar.xz`: `python make_repo.py DIRECTORY`, with icechunk 1.1.21 and zarr 3.

Ids and times are new with every run. Two seconds go by so that the expiration has a cutoff between two commits.
"""

import sys
import time
from datetime import datetime, timezone

import icechunk as ic
import numpy as np
import zarr

directory = sys.argv[1]
config = ic.RepositoryConfig.default()
config.inline_chunk_threshold_bytes = 8
config.set_virtual_chunk_container(ic.VirtualChunkContainer("s3://elsewhere/", ic.s3_store(region="us-east-1")))
repo = ic.Repository.create(ic.local_filesystem_storage(directory), config=config)
repo.save_config()

session = repo.writable_session("main")
group = zarr.create_group(session.store, overwrite=True)
plain = {"chunks": (2,), "dtype": "i8", "compressors": None, "filters": None}
group.create_array("native", shape=(20,), **plain)[:] = np.arange(1, 21)
group.create_array("deep/er/inline", shape=(3,), **{**plain, "chunks": (1,)})[:] = np.arange(7, 10)
group.create_array("virtual", shape=(60,), **plain)
chunks = [
    ic.VirtualChunkSpec(index=[n], location=f"s3://elsewhere/grid/{n % 7:03}.nc", offset=16 * n, length=16)
    for n in range(30)
]
session.store.set_virtual_refs("virtual", chunks, validate_containers=False)
metadata = {"author": "A. Writer", "numbers": [1, -1, 0.5, None, True], "nested": {"a": {"b": []}}}
ids = [session.commit("first", metadata=metadata)]

for number in range(5):
    if number == 2:
        time.sleep(1)
        cutoff = datetime.now(timezone.utc)
        time.sleep(1)
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="native", mode="r+")[2 * number : 2 * number + 2] = 100 + number
    ids.append(session.commit(f"change {number}", metadata={"number": number}))

repo.create_branch("dev", ids[1])
session = repo.writable_session("dev")
zarr.open_array(session.store, path="native", mode="r+")[18:20] = -1
session.commit("on dev")
repo.create_tag("v1", ids[1])
repo.create_tag("withdrawn", ids[4])
repo.delete_tag("withdrawn")
repo.expire_snapshots(cutoff)
