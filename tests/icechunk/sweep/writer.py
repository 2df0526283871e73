"""A user's process that commits to one branch as fast as it can: `… ENDPOINT BUCKET PREFIX BRANCH COUNT PAUSE`.

It writes the id of each commit, a line each, as soon as icechunk says that it is made. It imports little, to be quick.
"""

import sys
import time

import icechunk as ic
import zarr


def commit_to(repository: ic.Repository, branch: str = "main", number: int = 11) -> str:
    """Commit as a user does, and return the new snapshot's id."""
    session = repository.writable_session(branch)
    zarr.open_array(session.store, path="a", mode="r+")[number] = number
    return session.commit(f"number {number}")


def storage_of(endpoint: str, bucket: str, prefix: str) -> ic.Storage:
    """Return icechunk's way to a repository in a bucket whose server takes any credentials."""
    return ic.s3_storage(
        bucket=bucket,
        prefix=prefix,
        endpoint_url=endpoint,
        allow_http=True,
        force_path_style=True,
        region="us-east-1",
        access_key_id="any-access-key",
        secret_access_key="any-secret-key",
    )


def main(endpoint: str, bucket: str, prefix: str, branch: str, count: str, pause: str) -> None:
    repository = ic.Repository.open(storage_of(endpoint, bucket, prefix))
    for number in range(int(count)):
        sys.stdout.write(f"{commit_to(repository, branch, number % 12)}\n")
        sys.stdout.flush()
        time.sleep(float(pause))


if __name__ == "__main__":
    main(*sys.argv[1:])
